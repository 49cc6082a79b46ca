package transport

import "time"

// rawQueue has the state that only raw packet queues have.
type rawQueue struct {
	domain    uint32 // of a send queue
	minInline int
	stripVLAN bool // of a receive queue
	pace      Pace // of a send queue
	due       time.Duration
}

// Pace is how fast a send queue sends: by kilobits in a second, 0 for no limit, and Burst
// bytes at once.
type Pace struct {
	Rate, Burst uint32
}

// takes returns how long n bytes take.
func (p Pace) takes(n int) time.Duration {
	return time.Duration(n) * 8 * time.Millisecond / time.Duration(p.Rate)
}

// paced reports whether the queue has to wait before it may send. It is woken then.
func (q *QP) paced() bool {
	p := q.raw.pace
	if p.Rate == 0 {
		return false
	}
	at := q.raw.due - p.takes(int(p.Burst))
	if at <= q.e.now {
		return false
	}
	q.wake(at)
	return true
}

// spend counts what was sent.
func (q *QP) spend(n int) {
	if p := q.raw.pace; p.Rate != 0 {
		q.raw.due = max(q.raw.due, q.e.now) + p.takes(n)
	}
}

// PaceSQ changes how fast a send queue sends.
func (e *Engine) PaceSQ(sqn uint32, p Pace) error {
	q := e.half(sqn, kindSQ)
	if q == nil {
		return ErrNoRes
	}
	q.raw.pace, q.raw.due = p, 0
	e.activate(q)
	return nil
}

// CreateSQ creates a raw packet send queue.
func (e *Engine) CreateSQ(c SQContext) (sqn uint32, err error) {
	if c.LogSize > maxLogQueue || int(c.Port) > len(e.c.Ports) {
		return 0, ErrBadParam
	}
	if e.c.CQ(c.CQN) == nil {
		return 0, ErrNoRes
	}
	if sqn, err = e.newNumber(); err != nil {
		return 0, err
	}
	q := &QP{e: e, number: sqn, kind: kindSQ}
	q.c = QPContext{Service: Raw, PD: c.PD, LogSQSize: c.LogSize, RQType: NoRQ, RLKey: c.RLKey, UAR: c.UAR, RealTime: c.RealTime, UserIndex: c.UserIndex,
		CQNSend: c.CQN, DBRAddr: c.DBRAddr, Buffer: c.Buffer, LogMsgMax: 31, Primary: Path{Port: c.Port}}
	q.raw.domain, q.raw.minInline = c.Domain, int(c.MinInline)
	q.setup()
	e.qps[sqn] = q
	return sqn, nil
}

// half finds a queue of a kind.
func (e *Engine) half(n uint32, k kind) *QP {
	if q := e.qps[n]; q != nil && q.kind == k {
		return q
	}
	return nil
}

// modifyHalf changes the state of a queue.
func (e *Engine) modifyHalf(n uint32, k kind, from, to State) error {
	q := e.half(n, k)
	switch {
	case q == nil:
		return ErrNoRes
	case q.c.State != from:
		return ErrBadState
	case to == Err:
		q.toErr()
	case to == Reset:
		q.reset()
		q.raw.pace, q.raw.due = Pace{}, 0
	case to == RTS && from != Err:
		q.c.State = RTS
		e.activate(q)
	default:
		return ErrBadState
	}
	return nil
}

// ModifySQ changes its state.
func (e *Engine) ModifySQ(sqn uint32, from, to State) error {
	return e.modifyHalf(sqn, kindSQ, from, to)
}

// QuerySQ returns the current context.
func (e *Engine) QuerySQ(sqn uint32) (SQContext, bool) {
	q := e.half(sqn, kindSQ)
	if q == nil {
		return SQContext{}, false
	}
	c := &q.c
	return SQContext{State: c.State, PD: c.PD, Port: c.Primary.Port, CQN: c.CQNSend, UserIndex: c.UserIndex,
		Domain: q.raw.domain, MinInline: uint8(q.raw.minInline), UAR: c.UAR, LogSize: c.LogSQSize, RLKey: c.RLKey, DBRAddr: c.DBRAddr, Buffer: c.Buffer}, true
}

// DestroySQ removes it.
func (e *Engine) DestroySQ(sqn uint32) error { return e.destroyHalf(sqn, kindSQ) }

func (e *Engine) destroyHalf(n uint32, k kind) error {
	q := e.half(n, k)
	if q == nil {
		return ErrNoRes
	}
	e.remove(q)
	return nil
}

// CreateRQ creates a raw packet receive queue.
func (e *Engine) CreateRQ(c RQContext) (rqn uint32, err error) {
	if c.LogSize > maxLogQueue-1 || c.LogStride > 6 {
		return 0, ErrBadParam
	}
	if e.c.CQ(c.CQN) == nil {
		return 0, ErrNoRes
	}
	var s *srq
	if c.RMPN != 0 {
		if s = e.srqs[c.RMPN]; s == nil {
			return 0, ErrNoRes
		}
	}
	if rqn, err = e.newNumber(); err != nil {
		return 0, err
	}
	q := &QP{e: e, number: rqn, kind: kindRQ, srq: s}
	q.c = QPContext{Service: Raw, NoSQ: true, PD: c.PD, RQType: NoRQ, RLKey: c.RLKey, UserIndex: c.UserIndex, CounterSet: c.CounterSet, RealTime: c.RealTime,
		CQNRecv: c.CQN, DBRAddr: c.DBRAddr, Buffer: c.Buffer}
	if s != nil {
		s.users++
	} else {
		q.c.RQType, q.c.LogRQSize, q.c.LogRQStride, q.c.WQSignature = OwnRQ, c.LogSize, c.LogStride, c.WQSignature
	}
	q.raw.stripVLAN = c.StripVLAN
	q.setup()
	e.qps[rqn] = q
	return rqn, nil
}

// ModifyRQ changes its state.
func (e *Engine) ModifyRQ(rqn uint32, from, to State) error {
	return e.modifyHalf(rqn, kindRQ, from, to)
}

// ChangeRQ changes whether it strips VLAN tags, and its counters.
func (e *Engine) ChangeRQ(rqn uint32, stripVLAN bool, counters uint8) error {
	q := e.half(rqn, kindRQ)
	if q == nil {
		return ErrNoRes
	}
	q.raw.stripVLAN, q.c.CounterSet = stripVLAN, counters
	return nil
}

// QueryRQ returns the current context.
func (e *Engine) QueryRQ(rqn uint32) (RQContext, bool) {
	q := e.half(rqn, kindRQ)
	if q == nil {
		return RQContext{}, false
	}
	c := &q.c
	x := RQContext{State: c.State, PD: c.PD, CQN: c.CQNRecv, UserIndex: c.UserIndex, CounterSet: c.CounterSet, LogSize: c.LogRQSize,
		LogStride: c.LogRQStride, StripVLAN: q.raw.stripVLAN, WQSignature: c.WQSignature, RLKey: c.RLKey, DBRAddr: c.DBRAddr, Buffer: c.Buffer}
	if q.srq != nil {
		x.RMPN = q.srq.number
	}
	return x, true
}

// DestroyRQ removes it.
func (e *Engine) DestroyRQ(rqn uint32) error { return e.destroyHalf(rqn, kindRQ) }
