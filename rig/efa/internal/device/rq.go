package device

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// An rq is a receive queue in the machine's memory. A receive has one descriptor or more.
type rq struct {
	base     uint64
	size     uint32 // descriptors
	doorbell uint16 // counts the descriptors that were posted
	consumed uint16
}

// create sets the queue up, if its size is possible. It can have no descriptors.
func (r *rq) create(base uint64, bytes, depth uint32) bool {
	r.base, r.size = base, bytes/rqEntry
	return bytes%rqEntry == 0 && r.size&(r.size-1) == 0 && r.size <= maxRQDepth && depth <= r.size
}

func (r *rq) reset() { r.doorbell, r.consumed = 0, 0 }

// ringRQ executes the doorbell of a receive queue.
func (d *Device) ringRQ(q *qp, v uint32) {
	r := &q.rq
	if v>>16 != 0 || uint32(uint16(v)-r.consumed) > r.size {
		d.violate("QP %#x: the receive queue's doorbell is %#x after %#x, of %d descriptors", q.number, v, r.doorbell, r.size)
		return
	}
	r.doorbell = uint16(v)
	if q.state == stateError {
		d.flush(q)
	}
}

// A receive is an entry of a receive queue.
type receive struct {
	request uint16
	buffers []buffer
	length  uint32
	end     uint16 // the descriptor after its last one
}

type buffer struct {
	addr   uint64
	key    uint32
	length uint32
}

// peek returns the next receive, if there is one.
func (d *Device) peek(q *qp) (r receive, ok bool) {
	const first, last = 1 << 30, 1 << 31
	for at := q.rq.consumed; at != q.rq.doorbell; at++ {
		b := d.Memory.Bytes(q.rq.base+uint64(uint32(at)&(q.rq.size-1))*rqEntry, rqEntry)
		if b == nil {
			d.violate("QP %#x: the receive queue is where there is no memory", q.number)
			return receive{}, false
		}
		control := binary.LittleEndian.Uint32(b[12:])
		if at == q.rq.consumed {
			r.request = binary.LittleEndian.Uint16(b[8:])
		}
		if (at == q.rq.consumed) != (control&first != 0) {
			d.violate("QP %#x: descriptor %d of the receive queue is % x", q.number, at, b)
			return receive{}, false
		}
		x := buffer{addr: binary.LittleEndian.Uint64(b), length: uint32(binary.LittleEndian.Uint16(b[10:])), key: control & keyMask}
		r.buffers = append(r.buffers, x)
		r.length += x.length
		if control&last != 0 {
			r.end = at + 1
			return r, true
		}
	}
	return receive{}, false
}

// Receive implements wire.Receiver.
func (d *Device) Receive(m *wire.Message) wire.Status {
	q := d.receiver(m)
	if q == nil {
		d.stats.drops++
		return wire.BadQP
	}
	var status wire.Status
	switch m.Op {
	case wire.Send:
		status = d.receiveSend(q, m)
	case wire.Write:
		status = d.receiveWrite(q, m)
	case wire.Read:
		status = d.receiveRead(q, m)
	}
	d.countReceive(m, status)
	return status
}

// grhSize is the size of the header before the data of an unreliable message.
const grhSize = 40

func (d *Device) receiveSend(q *qp, m *wire.Message) wire.Status {
	r, ok := d.peek(q)
	if !ok {
		return wire.NotReady
	}
	data := m.Data
	if !q.srd {
		data = append(globalRoutingHeader(m), data...)
	}
	if uint32(len(data)) > r.length {
		return wire.BadLength
	}
	c := d.received(q, m, uint32(len(data)))
	c.request = r.request
	status := wire.OK
	if !d.store(q, r, data) {
		c.status, status = wire.BadLKey, wire.BadStatus
	}
	q.rq.consumed = r.end
	d.completeReceive(q, c)
	return status
}

// store writes data to the buffers of a receive.
func (d *Device) store(q *qp, r receive, data []byte) bool {
	for _, x := range r.buffers {
		n := min(int(x.length), len(data))
		if n == 0 {
			continue
		}
		pieces, ok := d.access(x.key, q.pd, x.addr, uint32(n), localWrite)
		if !ok {
			return false
		}
		scatter(pieces, data[:n])
		data = data[n:]
	}
	return true
}

// received returns the completion of a message that arrived.
func (d *Device) received(q *qp, m *wire.Message, length uint32) completion {
	c := completion{
		op: m.Op, length: length, ah: unknownAH, from: m.FromQP, imm: m.Imm,
		hasImm: m.HasImm, address: m.From,
	}
	if n, ok := d.findAH(m.From, q.pd); ok {
		c.ah = uint16(n)
	}
	return c
}

func (d *Device) receiveWrite(q *qp, m *wire.Message) wire.Status {
	if !d.knows(m.From) {
		return wire.UnknownPeer
	}
	if !d.Profile.RDMAWrite {
		return wire.BadStatus
	}
	var r receive
	if m.HasImm && !q.unsolicited {
		var ok bool
		if r, ok = d.peek(q); !ok {
			return wire.NotReady
		}
	}
	if len(m.Data) > 0 {
		pieces, ok := d.access(m.RemoteKey, q.pd, m.RemoteAddress, m.RemoteLength, remoteWrite)
		if !ok {
			return wire.BadAddress
		}
		scatter(pieces, m.Data)
	}
	if m.HasImm {
		c := d.received(q, m, m.RemoteLength)
		c.request, c.unsolicited = r.request, q.unsolicited
		if !q.unsolicited {
			q.rq.consumed = r.end
		}
		d.completeReceive(q, c)
	}
	return wire.OK
}

func (d *Device) receiveRead(q *qp, m *wire.Message) wire.Status {
	if !d.knows(m.From) {
		return wire.UnknownPeer
	}
	if m.RemoteLength == 0 {
		return wire.OK
	}
	pieces, ok := d.access(m.RemoteKey, q.pd, m.RemoteAddress, m.RemoteLength, remoteRead)
	if !ok {
		return wire.BadAddress
	}
	m.Data = gather(nil, pieces)
	return wire.OK
}

// globalRoutingHeader returns the header of an unreliable message.
func globalRoutingHeader(m *wire.Message) []byte {
	h := make([]byte, grhSize, grhSize+len(m.Data))
	const version6, nextHeader, hopLimit = 6 << 4, 0x1b, 64
	h[0], h[6], h[7] = version6, nextHeader, hopLimit
	binary.BigEndian.PutUint16(h[4:], uint16(len(m.Data)))
	copy(h[8:], m.From[:])
	copy(h[24:], m.To[:])
	return h
}
