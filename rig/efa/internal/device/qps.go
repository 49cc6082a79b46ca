package device

import "github.com/goverbs/goverbs/rig/efa/internal/wire"

// QP types.
const (
	typeUD  = 1
	typeSRD = 2
)

// QP states.
const (
	stateReset = iota
	stateInit
	stateRTR
	stateRTS
	stateSQD
	stateSQE
	stateError
)

// A qp is a queue pair.
type qp struct {
	slot        uint32 // its doorbells and its send queue's memory follow from it
	number      uint16
	srd         bool
	unsolicited bool // writes with immediate use no receives
	pd          uint32
	uar         uint32
	sendCQ      *cq
	receiveCQ   *cq
	sendSub     uint16 // sub-CQs
	receiveSub  uint16

	state     uint32
	qkey      uint32
	psn       uint32
	rnrRetry  uint8
	destroyed bool

	sq     sq
	rq     rq
	faults []*Fault
}

// A handle names a QP in commands. It is not its number.
const firstHandle = 0x1000

func (d *Device) qpOf(handle uint32) *qp { return d.qps.get(handle - firstHandle) }

// alwaysRetry is the number of retries that has no end.
const alwaysRetry = 7

func (d *Device) createQP(c *command, a *answer) status {
	const (
		sqVirtual   = 1 << 0
		rqVirtual   = 1 << 1
		unsolicited = 1 << 2
	)
	in, kind, flags := uint32(c.u16(4)), c.u8(6), c.u8(7)
	p := d.pds.get(in)
	q := &qp{
		srd: kind == typeSRD, unsolicited: flags&unsolicited != 0, pd: in, uar: uint32(c.u16(56)),
		sendCQ: d.cqs.get(c.u32(24)), receiveCQ: d.cqs.get(c.u32(28)), rnrRetry: alwaysRetry,
	}
	if p == nil || kind != typeUD && kind != typeSRD || flags&(sqVirtual|rqVirtual) != 0 ||
		q.unsolicited && !d.Profile.RDMAWrite ||
		q.sendCQ == nil || q.receiveCQ == nil || d.uars.get(q.uar) == nil {
		return illegalParameter
	}
	var ok bool
	if q.slot, ok = d.qps.add(q); !ok {
		return noResources
	}
	if !q.sq.create(d.LLQ[q.slot*maxLLQ:][:maxLLQ], c.u32(40), c.u32(44)) || !q.rq.create(c.u64(16), c.u32(48), c.u32(52)) {
		d.qps.remove(q.slot)
		return illegalParameter
	}
	d.generation[q.slot] = d.generation[q.slot]%255 + 1 // never 0, and so no QP has the number 0
	q.number = uint16(d.generation[q.slot])<<8 | uint16(q.slot)
	p.users++
	q.sendCQ.users++
	q.receiveCQ.users++
	q.sendSub, q.receiveSub = q.sendCQ.subCQ(), q.receiveCQ.subCQ()
	doorbells := q.uar*doorbellPage + 8*q.slot
	a.put32(0, firstHandle+q.slot)
	a.put16(4, q.number)
	a.put16(8, q.sendSub)
	a.put16(10, q.receiveSub)
	a.put32(12, doorbells)
	a.put32(16, doorbells+4)
	a.put32(20, q.slot*maxLLQ)
	return success
}

func (d *Device) destroyQP(c *command, _ *answer) status {
	q := d.qpOf(c.u32(4))
	if q == nil {
		return illegalParameter
	}
	q.destroyed = true
	d.pds.get(q.pd).users--
	q.sendCQ.users--
	q.receiveCQ.users--
	d.qps.remove(q.slot)
	return success
}

func (d *Device) queryQP(c *command, a *answer) status {
	q := d.qpOf(c.u32(4))
	if q == nil {
		return illegalParameter
	}
	a.put32(0, q.state)
	a.put32(4, q.qkey)
	a.put32(8, q.psn)
	if q.state == stateSQD && len(q.sq.flying) > 0 {
		a[12] = 1
	}
	a[13] = q.rnrRetry
	return success
}

// successors has the states that a QP can get into from each state, besides reset and error.
var successors = map[uint32][]uint32{
	stateReset: {stateInit},
	stateInit:  {stateInit, stateRTR},
	stateRTR:   {stateRTS},
	stateRTS:   {stateRTS, stateSQD},
	stateSQD:   {stateRTS, stateSQD},
	stateSQE:   {stateRTS},
}

func allowed(from, to uint32) bool {
	if to == stateReset || to == stateError && from != stateReset {
		return true
	}
	for _, s := range successors[from] {
		if s == to {
			return true
		}
	}
	return false
}

func (d *Device) modifyQP(c *command, _ *answer) status {
	const (
		setState = 1 << iota
		setCurrent
		setQKey
		setPSN
		setNotify
		setRNRRetry
		setAll = 1<<iota - 1
	)
	mask, q := c.u32(4), d.qpOf(c.u32(8))
	to, from, retry := c.u32(12), c.u32(16), c.u8(29)
	if q == nil || mask&^setAll != 0 || mask&setCurrent != 0 && from != q.state ||
		mask&setState != 0 && !allowed(q.state, to) ||
		mask&setRNRRetry != 0 && (!q.srd || !d.Profile.RNRRetry || retry > alwaysRetry) {
		return illegalParameter
	}
	if mask&setQKey != 0 {
		q.qkey = c.u32(20)
	}
	if mask&setPSN != 0 {
		q.psn = c.u32(24)
	}
	if mask&setRNRRetry != 0 {
		q.rnrRetry = retry
	}
	if mask&setState == 0 {
		return success
	}
	q.state = to
	switch to {
	case stateReset:
		q.sq.reset()
		q.rq.reset()
		q.rnrRetry = alwaysRetry
	case stateError:
		d.flush(q)
	case stateRTS:
		d.send(q)
	}
	return success
}

// flush completes everything that is in the queues.
func (d *Device) flush(q *qp) {
	for _, f := range q.sq.flying {
		f.over = true
		d.completeSend(q, completion{request: f.request, status: wire.Flushed, op: f.op})
	}
	q.sq.flying = nil
	for q.sq.consumed != q.sq.doorbell {
		e := q.sq.fetch()
		d.completeSend(q, completion{request: e.request(), status: wire.Flushed, op: e.op()})
	}
	for {
		r, ok := d.peek(q)
		if !ok {
			break
		}
		q.rq.consumed = r.end
		d.completeReceive(q, completion{request: r.request, status: wire.Flushed})
	}
}

// receiver finds the QP that a message is for.
func (d *Device) receiver(m *wire.Message) *qp {
	q := d.qps.get(uint32(m.ToQP) % maxQP)
	if q == nil || q.number != m.ToQP || q.srd != m.Reliable || q.qkey != m.QKey || q.state < stateRTR || q.state == stateError {
		return nil
	}
	return q
}
