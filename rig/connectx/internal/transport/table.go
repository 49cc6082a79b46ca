package transport

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
)

// Limits of the engine. Those that the HCA reports are lower.
const (
	maxLogQueue = 16
	maxWQE      = 1024
)

func (e *Engine) newNumber() (uint32, error) {
	for range maxNumber {
		n := e.nextQPN
		if e.nextQPN++; e.nextQPN > maxNumber {
			e.nextQPN = firstQPN
		}
		if e.qps[n] == nil {
			return n, nil
		}
	}
	return 0, ErrLimit
}

// CreateQP creates a queue pair in state Reset.
func (e *Engine) CreateQP(c QPContext) (qpn uint32, err error) {
	if c.LogSQSize > maxLogQueue || c.LogRQSize > maxLogQueue || c.LogRQStride > 7 || c.RQType > NoRQ {
		return 0, ErrBadParam
	}
	switch c.Service {
	case RC, UC, UD, XRC, MLX, DCI, QP0, QP1, RegUMR:
	default:
		return 0, ErrBadParam
	}
	if e.c.CQ(c.CQNSend) == nil && !c.NoSQ || e.c.CQ(c.CQNRecv) == nil && c.RQType != NoRQ && c.Service != XRC {
		return 0, ErrNoRes
	}
	var s *srq
	if c.RQType == SharedRQ && c.SRQN != 0 {
		if s = e.srqs[c.SRQN]; s == nil {
			return 0, ErrNoRes
		}
	}
	if qpn, err = e.newNumber(); err != nil {
		return 0, err
	}
	c.State = Reset
	q := &QP{e: e, c: c, number: qpn, kind: kindQP}
	if s != nil {
		q.srq = s
		s.users++
	}
	q.setup()
	e.qps[qpn] = q
	return qpn, nil
}

// QueryQP returns the current context.
func (e *Engine) QueryQP(qpn uint32) (QPContext, bool) {
	q := e.qps[qpn]
	if q == nil || q.kind != kindQP {
		return QPContext{}, false
	}
	c := q.c
	if c.State >= RTS {
		c.NextSendPSN = q.req.next
		c.LastAckedPSN = q.req.acked
		c.SSN = q.req.ssn
	}
	c.NextRecvPSN = q.resp.psn
	c.HWSQCounter = q.sqNext
	c.SWSQCounter = q.sqProducer()
	c.HWRQCounter = uint32(q.rq.consumer)
	c.SWRQCounter = uint32(q.rq.producer(e))
	c.CurRetry, c.CurRNRRetry = q.req.retry, q.req.rnrRetry
	return c, true
}

// DestroyQP removes a queue pair.
func (e *Engine) DestroyQP(qpn uint32) error {
	q := e.qps[qpn]
	if q == nil || q.kind != kindQP {
		return ErrNoRes
	}
	e.remove(q)
	return nil
}

func (e *Engine) remove(q *QP) {
	for g, members := range e.groups {
		for _, m := range members {
			if m == q {
				e.leave(q, g)
				break
			}
		}
	}
	for k, s := range e.special {
		if s == q {
			delete(e.special, k)
		}
	}
	if q.srq != nil {
		q.srq.users--
	}
	q.dead = true
	delete(e.qps, q.number)
}

// AttachMulticast makes a UD queue pair a member of a group (ATTACH_TO_MCG).
func (e *Engine) AttachMulticast(qpn uint32, g fabric.GID) error {
	q := e.qps[qpn]
	if q == nil || q.kind != kindQP {
		return ErrNoRes
	}
	if q.c.Service != UD || !g.Multicast() {
		return ErrBadParam
	}
	if !slices.Contains(e.groups[g], q) {
		e.groups[g] = append(e.groups[g], q)
		for _, p := range e.c.Ports {
			p.Join(g)
		}
	}
	return nil
}

// DetachMulticast ends a membership.
func (e *Engine) DetachMulticast(qpn uint32, g fabric.GID) error {
	q := e.qps[qpn]
	if q == nil || !slices.Contains(e.groups[g], q) {
		return ErrNoRes
	}
	e.leave(q, g)
	return nil
}

func (e *Engine) leave(q *QP, g fabric.GID) {
	e.groups[g] = slices.DeleteFunc(e.groups[g], func(m *QP) bool { return m == q })
	if len(e.groups[g]) == 0 {
		delete(e.groups, g)
	}
	for _, p := range e.c.Ports {
		p.Leave(g)
	}
}

// specialKey returns the key of a port's QP0 or QP1 in Engine.special.
func specialKey(port uint8, gsi bool) uint16 {
	k := uint16(port) << 1
	if gsi {
		k |= 1
	}
	return k
}
