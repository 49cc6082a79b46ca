package transport

import "github.com/goverbs/goverbs/rig/connectx/internal/eq"

// srq is an SRQ, an XRC SRQ, an RMP or an XRQ.
type srq struct {
	e      *Engine
	c      SRQContext
	number uint32
	rq     recvQueue
	users  int
	tags   tagList // of an XRQ
}

// CreateSRQ creates an SRQ, an XRC SRQ, an RMP or an XRQ. All share one number space.
func (e *Engine) CreateSRQ(c SRQContext) (srqn uint32, err error) {
	if c.LogSize > maxLogQueue-1 || c.LogStride > 6 || !c.Cyclic && c.LogStride == 0 {
		return 0, ErrBadParam
	}
	if (c.XRC || c.TM) && e.c.CQ(c.CQN) == nil {
		return 0, ErrNoRes
	}
	for e.srqs[e.nextSRQN] != nil {
		e.advanceSRQN()
	}
	s := &srq{e: e, c: c, number: e.nextSRQN}
	e.advanceSRQN()
	s.rq = recvQueue{owner: "SRQ", number: s.number, buf: &s.c.Buffer, logSize: c.LogSize, stride: 16 << c.LogStride, dbr: c.DBRAddr, sig: c.WQSignature, linked: !c.Cyclic}
	if c.TM {
		s.tags.entries = make([]tagEntry, 1<<c.LogTags)
	}
	e.srqs[s.number] = s
	return s.number, nil
}

func (e *Engine) advanceSRQN() {
	if e.nextSRQN++; e.nextSRQN > maxNumber {
		e.nextSRQN = firstSRQN
	}
}

// ArmSRQ requests an event when fewer than lwm WQEs are left (ARM_RQ, ARM_XRC_SRQ,
// MODIFY_RMP). If fewer are left already, the event comes at once.
func (e *Engine) ArmSRQ(srqn uint32, lwm uint16) error {
	s := e.srqs[srqn]
	if s == nil {
		return ErrNoRes
	}
	s.c.LWM = lwm
	s.checkLimit()
	return nil
}

func (s *srq) checkLimit() {
	if s.c.LWM != 0 && s.rq.available(s.e) < int(s.c.LWM) {
		s.c.LWM = 0
		s.e.c.Event(eq.SRQ(eq.TypeSRQLimit, s.number))
	}
}

// take fetches the next WQE.
func (s *srq) take(w *recvWQE) bool {
	was := s.rq.bad
	ok := s.rq.take(s.e, w)
	if s.rq.bad && !was {
		s.e.c.Event(eq.SRQ(eq.TypeSRQError, s.number))
	}
	if ok {
		s.checkLimit()
	}
	return ok
}

// QuerySRQ returns the current context.
func (e *Engine) QuerySRQ(srqn uint32) (SRQContext, bool) {
	s := e.srqs[srqn]
	if s == nil {
		return SRQContext{}, false
	}
	c := s.c
	c.Available = uint16(s.rq.available(e))
	c.Bad = s.rq.bad
	c.NextTag, c.SoftwarePhase, c.DevicePhase = s.tags.next, s.tags.software, s.tags.device
	return c, true
}

// DestroySRQ removes an SRQ that no queue pair uses.
func (e *Engine) DestroySRQ(srqn uint32) error {
	s := e.srqs[srqn]
	if s == nil {
		return ErrNoRes
	}
	if s.users > 0 {
		return ErrBusy
	}
	delete(e.srqs, srqn)
	return nil
}

// inDomain finds an XRC SRQ that a target of the domain may use.
func (e *Engine) inDomain(srqn, xrcd uint32) *srq {
	if s := e.srqs[srqn]; s != nil && s.c.XRC && s.c.XRCD == xrcd {
		return s
	}
	return nil
}
