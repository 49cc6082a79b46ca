package device

import "encoding/binary"

// An eq is a queue of completion events.
type eq struct {
	ring   ring
	vector int
	armed  bool
	unsaid bool // an event was written since the last interrupt
	users  int
}

const eqEntry = 16

func (d *Device) createEQ(c *command, a *answer) status {
	depth, vector, size := uint32(c.u16(4)), c.u8(6), uint32(c.u8(7)&0x1f)*4
	const completions = 1
	q := &eq{ring: ring{base: c.address(8), size: depth}, vector: int(vector)}
	if !d.Profile.EQs || !q.ring.valid() || depth > maxEQDepth || vector >= Vectors || size != eqEntry ||
		c.u32(16) != completions {
		return illegalParameter
	}
	n, ok := d.eqs.add(q)
	if !ok {
		return noResources
	}
	a.put16(0, uint16(n))
	return success
}

func (d *Device) destroyEQ(c *command, _ *answer) status {
	n := uint32(c.u16(4))
	switch q := d.eqs.get(n); {
	case q == nil:
		return illegalParameter
	case q.users > 0:
		return busy
	}
	d.eqs.remove(n)
	return success
}

// armEQ executes the doorbell by which the driver wants the next interrupt.
func (d *Device) armEQ(doorbell uint32) {
	const arm = 1 << 31
	q := d.eqs.get(doorbell & 0xffff)
	if q == nil || doorbell&arm == 0 {
		d.violate("an EQ's doorbell is %#x", doorbell)
		return
	}
	q.armed = true
	d.interrupt(q)
}

// interrupt raises the queue's interrupt if the driver wants it and doesn't know all events.
func (d *Device) interrupt(q *eq) {
	if q.armed && q.unsaid {
		q.armed, q.unsaid = false, false
		d.Interrupt(q.vector)
	}
}

// completionEvent writes an event of a CQ.
func (d *Device) completionEvent(q *eq, cqn uint16) {
	var e [eqEntry]byte
	binary.LittleEndian.PutUint16(e[8:], cqn)
	if !q.ring.put(d.Memory, e[:], 0) {
		d.violate("an EQ is where there is no memory")
		return
	}
	q.unsaid = true
	d.interrupt(q)
}
