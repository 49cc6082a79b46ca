package device

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// An sq is a send queue. Programs write its entries to the device's memory.
type sq struct {
	memory   []byte
	mask     uint16 // entries, less 1
	doorbell uint16 // counts the entries that were posted
	consumed uint16
	phase    uint8 // of the round; known from its first entry
	flying   []*flight
}

// A flight is an entry whose message is under way.
type flight struct {
	request uint16
	op      wire.Operation
	over    bool // its completion was written, or never will be
}

// create sets the queue up, if its size is possible. It can have no entries.
func (s *sq) create(memory []byte, bytes, depth uint32) bool {
	if depth > maxSQDepth || depth&(depth-1) != 0 || bytes != depth*sqEntry {
		return false
	}
	s.memory, s.mask = memory[:bytes], uint16(depth)-1
	return true
}

func (s *sq) reset() {
	for _, f := range s.flying {
		f.over = true
	}
	s.flying = nil
	s.doorbell, s.consumed = 0, 0
}

// A sqe is an entry of a send queue.
type sqe [sqEntry]byte

// Offsets and bits of an entry.
const (
	sqeImm      = 1 << 4 // in byte 2
	sqeInline   = 1 << 5
	sqeReserved = 1 << 6
	sqeMeta     = 1 << 7

	sqePhase  = 1 << 0 // in byte 3
	sqeFirst  = 1 << 2
	sqeLast   = 1 << 3
	sqeReport = 1 << 4

	sqeData  = 32
	sqeLocal = 48 // of RDMA
)

func (e *sqe) u16(off int) uint16 { return binary.LittleEndian.Uint16(e[off:]) }
func (e *sqe) u32(off int) uint32 { return binary.LittleEndian.Uint32(e[off:]) }
func (e *sqe) u64(off int) uint64 { return binary.LittleEndian.Uint64(e[off:]) }

func (e *sqe) request() uint16    { return e.u16(0) }
func (e *sqe) op() wire.Operation { return wire.Operation(e[2] & 7) }

// fetch returns the next entry.
func (s *sq) fetch() (e sqe) {
	copy(e[:], s.memory[int(s.consumed&s.mask)*sqEntry:])
	s.consumed++
	return e
}

// ringSQ executes the doorbell of a send queue.
func (d *Device) ringSQ(q *qp, v uint32) {
	s := &q.sq
	size := int(s.mask) + 1
	added := uint16(v) - s.doorbell
	switch {
	case len(s.memory) == 0 || v>>16 != 0 || int(uint16(v)-s.consumed)+len(s.flying) > size:
		d.violate("QP %#x: the send queue's doorbell is %#x after %#x, %d of %d entries are not completed", q.number, v, s.doorbell, len(s.flying), size)
		return
	case int(added)*sqEntry > maxTxBatch*64:
		d.violate("QP %#x: one doorbell for %d entries", q.number, added)
		return
	case q.state < stateRTS:
		d.violate("QP %#x: a send in state %d", q.number, q.state)
		return
	}
	s.doorbell = uint16(v)
	switch q.state {
	case stateError:
		d.flush(q)
	case stateRTS:
		d.send(q)
	}
}

// send executes the entries of a send queue.
func (d *Device) send(q *qp) {
	s := &q.sq
	for s.consumed != s.doorbell {
		index := s.consumed & s.mask
		e := s.fetch()
		if index == 0 {
			s.phase = e[3] & sqePhase
		}
		if e[2]&(sqeMeta|sqeReserved) != sqeMeta || e[3]&(sqeFirst|sqeLast|sqeReport) != sqeFirst|sqeLast|sqeReport ||
			e[3]&sqePhase != s.phase {
			d.violate("QP %#x: entry %d of the send queue was not written: % x", q.number, index, e)
			return
		}
		d.start(q, &e)
	}
}

// start sends the message of an entry.
func (d *Device) start(q *qp, e *sqe) {
	m := &wire.Message{
		Op: e.op(), From: d.GID, FromQP: q.number, ToQP: e.u16(4), QKey: e.u32(16), Imm: e.u32(8), HasImm: e[2]&sqeImm != 0,
		Reliable: q.srd, Patience: int(q.rnrRetry),
	}
	if q.rnrRetry == alwaysRetry {
		m.Patience = -1
	}
	f := &flight{request: e.request(), op: m.Op}
	q.sq.flying = append(q.sq.flying, f)
	if status := d.prepare(q, e, m); status != wire.OK {
		d.land(q, f, status)
		return
	}
	d.countSend(m)
	if !q.srd {
		d.Wire.Send(m)
		d.land(q, f, wire.OK)
		return
	}
	entry := *e
	m.Done = func(m *wire.Message, status wire.Status) {
		if q.destroyed || f.over {
			return
		}
		if m.Op == wire.Read && status == wire.OK {
			status = d.storeAnswer(q, &entry, m)
		}
		d.countDone(m, status)
		d.land(q, f, status)
	}
	d.Wire.Send(m)
}

// prepare completes the message by what the entry says about its destination and data.
func (d *Device) prepare(q *qp, e *sqe, m *wire.Message) wire.Status {
	to := d.ahs.get(uint32(e.u16(12)))
	if to == nil || to.pd != q.pd {
		return wire.BadAH
	}
	m.To = to.gid
	switch {
	case m.Op == wire.Send:
		return d.prepareSend(q, e, m)
	case q.srd && m.Op == wire.Read && d.Profile.RDMARead, q.srd && m.Op == wire.Write && d.Profile.RDMAWrite:
		return d.prepareRDMA(q, e, m)
	}
	return wire.UnsupportedOp
}

func (d *Device) prepareSend(q *qp, e *sqe, m *wire.Message) wire.Status {
	n := int(e.u16(6))
	if e[2]&sqeInline != 0 {
		if n > inlineSize {
			return wire.TooLong
		}
		m.Data = slices.Clone(e[sqeData:][:n])
		return wire.OK
	}
	if n > maxSendSGEs {
		return wire.TooLong
	}
	for i := range n {
		var status wire.Status
		if m.Data, status = d.load(q, e, sqeData+16*i, m.Data); status != wire.OK {
			return status
		}
		if len(m.Data) > mtu {
			return wire.TooLong
		}
	}
	return wire.OK
}

// load appends the data of a buffer, which is described at an offset of the entry.
func (d *Device) load(q *qp, e *sqe, at int, data []byte) ([]byte, wire.Status) {
	length, key, addr := e.u32(at), e.u32(at+4)&keyMask, e.u64(at+8)
	if length == 0 {
		return data, wire.OK
	}
	if length > maxRDMA {
		return data, wire.TooLong
	}
	pieces, ok := d.access(key, q.pd, addr, length, 0)
	if !ok {
		return data, wire.BadLKey
	}
	return gather(data, pieces), wire.OK
}

func (d *Device) prepareRDMA(q *qp, e *sqe, m *wire.Message) wire.Status {
	m.RemoteLength, m.RemoteKey, m.RemoteAddress = e.u32(sqeData), e.u32(sqeData+4), e.u64(sqeData+8)
	n := e.u16(6)
	if n > maxRDMASGEs || m.RemoteLength > maxRDMA || n == 1 && e.u32(sqeLocal) != m.RemoteLength || n == 0 && m.RemoteLength != 0 ||
		e[2]&sqeInline != 0 {
		return wire.TooLong
	}
	if m.RemoteLength == 0 {
		return wire.OK
	}
	if m.Op == wire.Read {
		_, ok := d.access(e.u32(sqeLocal+4)&keyMask, q.pd, e.u64(sqeLocal+8), m.RemoteLength, localWrite)
		if !ok {
			return wire.BadLKey
		}
		return wire.OK
	}
	var status wire.Status
	m.Data, status = d.load(q, e, sqeLocal, nil)
	return status
}

// storeAnswer stores what was read. The region may have gone meanwhile.
func (d *Device) storeAnswer(q *qp, e *sqe, m *wire.Message) wire.Status {
	if m.RemoteLength == 0 {
		return wire.OK
	}
	pieces, ok := d.access(e.u32(sqeLocal+4)&keyMask, q.pd, e.u64(sqeLocal+8), m.RemoteLength, localWrite)
	if !ok {
		return wire.BadLKey
	}
	scatter(pieces, m.Data)
	return wire.OK
}

// land completes an entry.
func (d *Device) land(q *qp, f *flight, status wire.Status) {
	f.over = true
	q.sq.flying = slices.DeleteFunc(q.sq.flying, func(x *flight) bool { return x == f })
	d.completeSend(q, completion{request: f.request, status: status, op: f.op})
}
