package device

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// A cq is a completion queue. It has one ring or several, its sub-CQs, among which the work
// queues are divided.
type cq struct {
	number   uint32
	rings    []ring
	entry    int // bytes
	source   bool
	uar      uint32
	eq       *eq // nil: no events
	users    int
	next     uint16 // the sub-CQ of the next work queue
	written  uint16 // completions
	consumed uint16 // completions that the program has told
	armed    bool
	said     bool  // there was an event
	serial   uint8 // of the last event
	faults   []*Fault
}

func (d *Device) createCQ(c *command, a *answer) status {
	const (
		events = 1 << 5
		source = 1 << 5
		large  = 32
		small  = 16
	)
	depth, eqn, base := uint32(c.u16(6)), uint32(c.u16(8)), c.address(12)
	q := &cq{
		entry: int(c.u8(5)&0x1f) * 4, source: c.u8(5)&source != 0, uar: uint32(c.u16(26)),
	}
	if depth == 0 || depth&(depth-1) != 0 || depth > maxCQDepth || q.entry != small && q.entry != large ||
		q.source && q.entry != large || c.u16(24) != d.Profile.SubCQs || d.uars.get(q.uar) == nil {
		return illegalParameter
	}
	if c.u8(4)&events != 0 {
		if q.eq = d.eqs.get(eqn); q.eq == nil {
			return illegalParameter
		}
	}
	for i := range c.u16(24) {
		q.rings = append(q.rings, ring{base: base + uint64(i)*uint64(depth)*uint64(q.entry), size: depth})
	}
	var ok bool
	if q.number, ok = d.cqs.add(q); !ok {
		return noResources
	}
	a.put16(0, uint16(q.number))
	a.put16(2, uint16(depth))
	if q.eq != nil {
		q.eq.users++
		const doorbellValid = 1
		a.put32(4, q.uar*doorbellPage+cqDoorbells+4*q.number)
		a.put32(8, doorbellValid)
	}
	return success
}

func (d *Device) destroyCQ(c *command, _ *answer) status {
	n := uint32(c.u16(4))
	q := d.cqs.get(n)
	switch {
	case q == nil:
		return illegalParameter
	case q.users > 0:
		return busy
	}
	if q.eq != nil {
		q.eq.users--
	}
	d.cqs.remove(n)
	return success
}

// subCQ chooses the sub-CQ for another work queue.
func (q *cq) subCQ() uint16 {
	n := q.next % uint16(len(q.rings))
	q.next++
	return n
}

// The work queues of a QP, by their numbers in completions.
const (
	sendQueue    = 1
	receiveQueue = 2
)

// A completion is what is reported of an entry of a work queue.
type completion struct {
	request     uint16
	status      wire.Status
	queue       uint8
	op          wire.Operation
	qp          uint16
	unsolicited bool
	// Of a received message.
	length  uint32
	ah      uint16
	from    uint16
	imm     uint32
	hasImm  bool
	address wire.GID // if the sender's ah is unknown
}

// unknownAH is the number of an address that has none.
const unknownAH = 0xffff

// completeSend reports an entry of a QP's send queue, and completeReceive a receive.
func (d *Device) completeSend(q *qp, c completion) {
	c.queue, c.qp = sendQueue, q.number
	if f := happens(&q.faults, FaultSend); f != nil {
		c.status = f.Status
	}
	d.complete(q.sendCQ, q.sendSub, c)
}

func (d *Device) completeReceive(q *qp, c completion) {
	c.queue, c.qp = receiveQueue, q.number
	if f := happens(&q.faults, FaultReceive); f != nil {
		c.status = f.Status
	}
	d.complete(q.receiveCQ, q.receiveSub, c)
}

// complete writes a completion and, if the program wants one, an event.
func (d *Device) complete(q *cq, sub uint16, c completion) {
	b := make([]byte, q.entry)
	le := binary.LittleEndian
	le.PutUint16(b[0:], c.request)
	b[2] = uint8(c.status)
	b[3] = c.queue<<1 | uint8(c.op)<<4
	le.PutUint16(b[4:], c.qp)
	if c.queue == receiveQueue {
		le.PutUint16(b[6:], uint16(c.length))
		le.PutUint16(b[8:], c.ah)
		le.PutUint16(b[10:], c.from)
		if c.hasImm {
			b[3] |= 1 << 3
			le.PutUint32(b[12:], c.imm)
		}
		if c.unsolicited {
			b[3] |= 1 << 7
		}
		switch {
		case c.op == wire.Write && len(b) > 16:
			le.PutUint16(b[16:], uint16(c.length>>16))
		case c.ah == unknownAH && q.source:
			copy(b[16:], c.address[:])
		}
	}
	d.deliver(q, sub, b)
}

// deliver puts a completion into a CQ.
func (d *Device) deliver(q *cq, sub uint16, b []byte) {
	const phaseBit = 24
	if !q.rings[sub].put(d.Memory, b, phaseBit) {
		d.violate("CQ %d is where there is no memory", q.number)
		return
	}
	q.written++
	d.event(q)
}

// event posts an event if the program wants one and there is a completion that it doesn't know.
func (d *Device) event(q *cq) {
	if q.eq == nil || !q.armed || q.written == q.consumed {
		return
	}
	q.armed, q.said = false, true
	if happens(&q.faults, FaultEvent) != nil {
		return
	}
	d.completionEvent(q.eq, uint16(q.number))
}

// ringCQ executes a CQ's doorbell.
func (d *Device) ringCQ(q *cq, v uint32) {
	const arm = 1 << 31
	serial := uint8(v >> 29 & 3)
	q.consumed = uint16(v)
	// Until the program has got an event, it asks for no other.
	if v&arm != 0 && (!q.said || serial != q.serial) {
		q.armed, q.serial = true, serial
		d.event(q)
	}
}
