package selftest

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/verbs"
)

// A shape describes a pair.
type shape struct {
	typ          verbs.QPType // RC, UC, UD, SRD, XRCSend or DCI
	sends, recvs int
	sges, inline int
	cqe          int // 0 for enough for the queues
	memory       int // bytes of each end's
	srq          bool
	events       bool // the CQs have channels
	signalAll    bool
	access       verbs.AccessFlags // of the memory; 0 for all
	allow        verbs.AccessFlags // of the QPs; 0 for all
	fewer        bool              // the check accepts fewer entries and inline bytes
	cq           func(*verbs.CQOptions)
	qp           func(*verbs.QPOptions)
	connect      func(*verbs.ConnectOptions)
}

const (
	remoteAll = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	localAll  = verbs.AccessLocalWrite | remoteAll
	none      = verbs.AccessFlags(1) << 31 // in a shape: no access at all
	qkey      = 0x5e1f
	dcKey     = 0x5e1f7e57
)

// A pair is a requester and a responder.
type pair struct {
	shape shape
	a, b  *end
}

// An end is one end of a pair.
type end struct {
	side *side
	pd   *verbs.PD
	send *verbs.CQ
	recv *verbs.CQ
	chS  *verbs.CompChannel
	chR  *verbs.CompChannel
	qp   *verbs.QP
	srq  *verbs.SRQ
	mr   *verbs.MR
	ah   *verbs.AH
	xrcd *verbs.XRCD
	ep   verbs.Endpoint
}

// pair creates a pair between the sides.
func (c *check) pair(s shape) (*pair, error) {
	if s.memory == 0 {
		s.memory = 4096
	}
	s.sges = max(s.sges, 1)
	if s.access == 0 {
		s.access = localAll
	}
	if s.allow == 0 {
		s.allow = remoteAll
	}
	s.access &^= none
	s.allow &^= none
	err := c.fit(&s)
	if err != nil {
		return nil, err
	}
	p := &pair{shape: s}
	if p.a, err = c.end(c.sides[0], &s); err != nil {
		return nil, err
	}
	if p.b, err = c.end(c.sides[1], &s); err != nil {
		return nil, err
	}
	switch s.typ {
	case verbs.RC, verbs.UC:
		err = c.connected(p)
	case verbs.UD, verbs.SRD:
		err = c.datagrams(p)
	case verbs.XRCSend:
		err = c.xrc(p)
	case verbs.DCI:
		err = c.dc(p)
	}
	if err != nil {
		return nil, err
	}
	c.at("%v", p)
	return p, nil
}

// fit compares a shape with the devices' limits. If the limits are lower, it returns an absence, or
// reduces the number of entries if the check accepts fewer.
func (r *run) fit(s *shape) error {
	for _, side := range r.sides {
		a := side.attr
		recvs, sges, pieces := a.MaxQPWR, a.MaxSGE, "requests of %d pieces"
		if s.srq || s.typ == verbs.XRCSend || s.typ == verbs.DCI {
			if a.MaxSRQ == 0 {
				return notThere("shared receive queues")
			}
			recvs = a.MaxSRQWR
			if a.MaxSRQSGE < sges {
				sges, pieces = a.MaxSRQSGE, "shared receives of %d pieces"
			}
		}
		completions := s.cqe
		if s.cqe == 0 {
			completions = max(s.sends, s.recvs)
		}
		for _, l := range []struct {
			what        string
			asked, have int
			fewer       *int // reduced if the check accepts fewer
		}{
			{pieces, s.sges, sges, &s.sges}, {"queues of %d sends", s.sends, a.MaxQPWR, nil},
			{"queues of %d receives", s.recvs, recvs, nil}, {"CQs of %d completions", completions, a.MaxCQE, nil},
		} {
			if l.asked <= l.have {
				continue
			}
			lack := fmt.Sprintf(l.what+": %s has %d", l.asked, side.dev.Info().Name(), l.have)
			if !s.fewer || l.fewer == nil {
				return notThere("%s", lack)
			}
			r.lacks(lack)
			*l.fewer = l.have
		}
	}
	return nil
}

// end creates the objects that all transports need: PD, CQs, memory, and an SRQ.
func (c *check) end(s *side, sh *shape) (*end, error) {
	e := &end{side: s}
	var err error
	if e.pd, err = s.dev.AllocPD(); err != nil {
		return nil, err
	}
	c.closing("PD", e.pd.Close)
	if e.mr, err = e.pd.AllocMR(sh.memory, verbs.MROptions{Access: sh.access & s.rights}); err != nil {
		return nil, err
	}
	c.closing("MR", e.mr.Close)
	cq := func(n int) (*verbs.CQ, *verbs.CompChannel, error) {
		o := verbs.CQOptions{MaxCQE: max(n, 1)}
		if sh.cqe > 0 {
			o.MaxCQE = sh.cqe
		}
		if sh.cq != nil {
			sh.cq(&o)
		}
		if sh.events {
			if o.Channel, err = s.dev.CreateCompChannel(); err != nil {
				return nil, nil, err
			}
			c.closing("completion channel", o.Channel.Close)
		}
		q, err := s.dev.CreateCQ(o)
		if err == nil {
			c.closing("CQ", q.Close)
		}
		return q, o.Channel, err
	}
	if e.send, e.chS, err = cq(sh.sends); err != nil {
		return nil, err
	}
	if e.recv, e.chR, err = cq(sh.recvs); err != nil {
		return nil, err
	}
	return e, nil
}

// create creates a QP with its own receive queue, or with an SRQ.
func (c *check) create(e *end, s *shape, typ verbs.QPType) (err error) {
	o := verbs.QPOptions{
		Type: typ, SendCQ: e.send, RecvCQ: e.recv, SignalAll: s.signalAll,
		Cap: verbs.QPCap{MaxSendWR: s.sends, MaxRecvWR: s.recvs, MaxSendSGE: s.sges, MaxRecvSGE: s.sges},
	}
	if s.srq {
		if err := c.shared(e, s, nil); err != nil {
			return err
		}
		o.SRQ, o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = e.srq, 0, 0
	}
	if s.qp != nil {
		s.qp(&o)
	}
	return c.createQP(e, s, o)
}

// createQP creates a QP. No device reports its limit of inline bytes. If it refuses the
// number, createQP tries fewer, if the check accepts fewer, and stores the number in s.inline.
func (c *check) createQP(e *end, s *shape, o verbs.QPOptions) (err error) {
	for asked := s.inline; ; s.inline /= 2 {
		o.Cap.MaxInlineData = s.inline
		if e.qp, err = e.pd.CreateQP(o); err == nil {
			c.closing("QP", e.qp.Close)
			if s.inline < asked {
				s.inline = min(asked, e.qp.Cap().MaxInlineData)
				c.lacks(fmt.Sprintf("%d inline bytes in a request of %v: %s has %d", asked, o.Type, e.side.dev.Info().Name(), s.inline))
			}
			return nil
		}
		if !s.fewer || s.inline == 0 || !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, syscall.EINVAL) {
			return err
		}
	}
}

func (c *check) shared(e *end, s *shape, x *verbs.XRCD) (err error) {
	o := verbs.SRQOptions{MaxWR: max(s.recvs, 1), MaxSGE: s.sges, XRCD: x}
	if x != nil {
		o.CQ = e.recv
	}
	if e.srq, err = e.pd.CreateSRQ(o); err != nil {
		return unlessLeft(err, "shared receive queues")
	}
	c.closing("SRQ", e.srq.Close)
	return nil
}

// unlessLeft is unlessThere for objects that may be scarce on the device, because the driver may
// need all of them itself. ENOMEM may be the limit of locked memory, which is a failure.
func unlessLeft(err error, what string) error {
	for _, none := range []error{syscall.EAGAIN, syscall.ENOSPC} {
		if errors.Is(err, none) {
			return notThere("%s: none is left", what)
		}
	}
	return unlessThere(err, what)
}

func (c *check) connected(p *pair) (err error) {
	for _, e := range []*end{p.a, p.b} {
		if err := c.create(e, &p.shape, p.shape.typ); err != nil {
			return err
		}
	}
	return p.connect()
}

// sibling creates and connects a second RC pair on the memory, the CQs and the SRQs of the
// first. If own isn't nil, it is the CQ of the responder's receives. Without an SRQ, the pair has
// room for one receive.
func (c *check) sibling(p *pair, own *verbs.CQ) (*pair, error) {
	s := &pair{shape: p.shape, a: new(end), b: new(end)}
	*s.a, *s.b = *p.a, *p.b
	if own != nil {
		s.b.recv = own
	}
	for _, e := range []*end{s.a, s.b} {
		o := verbs.QPOptions{Type: verbs.RC, SendCQ: e.send, RecvCQ: e.recv, SRQ: e.srq, Cap: verbs.QPCap{MaxSendWR: p.shape.sends, MaxSendSGE: 1}}
		if e.srq == nil {
			o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = 1, 1
		}
		var err error
		if e.qp, err = e.pd.CreateQP(o); err != nil {
			return nil, err
		}
		c.closing("QP", e.qp.Close)
	}
	return s, s.connect()
}

// connect connects RC or UC queue pairs that are in RESET.
func (p *pair) connect() (err error) {
	for _, e := range []*end{p.a, p.b} {
		if e.ep, err = e.qp.Endpoint(e.side.gid); err != nil {
			return err
		}
	}
	return p.link()
}

// link connects queue pairs that have endpoints. The timeouts are short, because the peer is near.
func (p *pair) link() error {
	o := verbs.ConnectOptions{AckTimeout: 500 * time.Millisecond}
	if p.shape.connect != nil {
		p.shape.connect(&o)
	}
	o.Access = p.shape.allow & p.b.side.rights
	if err := p.b.qp.Connect(p.a.ep, o); err != nil {
		return err
	}
	o.Access = p.shape.allow & p.a.side.rights
	return p.a.qp.Connect(p.b.ep, o)
}

func (c *check) datagrams(p *pair) (err error) {
	for _, e := range []*end{p.a, p.b} {
		if err := c.create(e, &p.shape, p.shape.typ); err != nil {
			return err
		}
		if err := e.activate(); err != nil {
			return err
		}
	}
	if p.shape.typ == verbs.SRD { // a target of RDMA must know the requester
		if p.b.ah, err = p.b.pd.CreateAH(p.b.side.pathTo(p.a.side)); err != nil {
			return err
		}
		c.closing("AH", p.b.ah.Close)
	}
	return c.handle(p)
}

// activate makes a queue pair for datagrams ready to send and receive.
func (e *end) activate() error {
	return e.qp.Activate(verbs.ActivateOptions{Port: e.side.num, QKey: qkey})
}

// handle creates the requester's address handle.
func (c *check) handle(p *pair) (err error) {
	if p.a.ah, err = p.a.pd.CreateAH(p.a.side.pathTo(p.b.side)); err != nil {
		return err
	}
	c.closing("AH", p.a.ah.Close)
	return nil
}

func (c *check) xrc(p *pair) (err error) {
	if p.b.xrcd, err = p.b.side.dev.OpenXRCD(); err != nil {
		return unlessLeft(err, "XRC")
	}
	c.closing("XRC domain", p.b.xrcd.Close)
	s := &p.shape
	if err := c.shared(p.b, s, p.b.xrcd); err != nil {
		return unlessThere(err, "XRC")
	}
	if err := c.createQP(p.a, s, verbs.QPOptions{Type: verbs.XRCSend, SendCQ: p.a.send, SignalAll: s.signalAll,
		Cap: verbs.QPCap{MaxSendWR: s.sends, MaxSendSGE: s.sges}}); err != nil {
		return unlessThere(err, "XRC")
	}
	if p.b.qp, err = p.b.xrcd.CreateQP(verbs.QPOptions{}); err != nil {
		return unlessThere(err, "XRC")
	}
	c.closing("QP", p.b.qp.Close)
	return p.connect()
}

func (c *check) dc(p *pair) (err error) {
	s := &p.shape
	if err := c.createQP(p.a, s, verbs.QPOptions{Type: verbs.DCI, SendCQ: p.a.send, RecvCQ: p.a.recv, SignalAll: s.signalAll,
		Cap: verbs.QPCap{MaxSendWR: s.sends, MaxSendSGE: s.sges}}); err != nil {
		return unlessThere(err, "DC")
	}
	if err := c.shared(p.b, s, nil); err != nil {
		return err
	}
	if p.b.qp, err = p.b.pd.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: p.b.recv, RecvCQ: p.b.recv, SRQ: p.b.srq, DCKey: dcKey}); err != nil {
		return unlessThere(err, "DC")
	}
	c.closing("QP", p.b.qp.Close)
	a := verbs.QPAttr{Port: p.b.side.num, Access: s.allow&p.b.side.rights | verbs.AccessLocalWrite, PathMTU: ib.MTUOf(c.mtu()), AH: p.b.side.pathTo(p.a.side), MinRNRTimer: 12}
	for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR} {
		if err := p.b.qp.Modify(a, verbs.RequiredMask(verbs.DCT, a.State-1, a.State)); err != nil {
			return err
		}
	}
	if err := p.a.qp.Activate(verbs.ActivateOptions{Port: p.a.side.num, MTU: ib.MTUOf(c.mtu())}); err != nil {
		return err
	}
	return c.handle(p)
}

// String names the pair's queue pairs by their numbers, as the driver does.
func (p *pair) String() string {
	s := fmt.Sprintf("%v QP %#x to %#x", p.shape.typ, p.a.qp.Num(), p.b.qp.Num())
	if p.b.srq != nil {
		s += " with an SRQ"
	}
	return s
}

// to completes a request with the responder's address.
func (p *pair) to(wr verbs.SendWR) verbs.SendWR {
	switch p.shape.typ {
	case verbs.UD, verbs.SRD:
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.a.ah, p.b.qp.Num(), qkey
	case verbs.DCI:
		wr.AH, wr.RemoteQPN, wr.DCKey = p.a.ah, p.b.qp.Num(), dcKey
	case verbs.XRCSend:
		wr.RemoteSRQN = p.b.srq.Num()
	}
	return wr
}

// post posts requests of the requester: with Sends if the first ID is odd, else with
// PostSend, because the library has separate code for both.
func (p *pair) post(wrs ...verbs.SendWR) error {
	for i := range wrs {
		wrs[i] = p.to(wrs[i])
	}
	var n int
	var err error
	if len(wrs) > 0 && wrs[0].WRID%2 == 1 {
		n, err = p.a.qp.Sends(func(b *verbs.SendBuilder) error {
			for i := range wrs {
				p.build(b, &wrs[i])
			}
			return nil
		})
	} else {
		n, err = p.a.qp.PostSend(wrs...)
	}
	if err == nil && n != len(wrs) {
		err = fmt.Errorf("posted %d of %d requests", n, len(wrs))
	}
	return err
}

// build adds a request to a batch, by the method for its operation if there is one.
func (p *pair) build(b *verbs.SendBuilder, wr *verbs.SendWR) {
	if len(wr.SGL) != 1 || p.shape.typ != verbs.RC && p.shape.typ != verbs.UC {
		b.Add(*wr)
		return
	}
	switch g := wr.SGL[0]; wr.Opcode {
	case verbs.OpSend:
		b.Send(wr.WRID, wr.Flags, g)
	case verbs.OpSendImm:
		b.SendImm(wr.WRID, wr.Flags, wr.Imm, g)
	case verbs.OpRDMAWrite:
		b.RDMAWrite(wr.WRID, wr.Flags, wr.Remote, g)
	case verbs.OpRDMAWriteImm:
		b.RDMAWriteImm(wr.WRID, wr.Flags, wr.Remote, wr.Imm, g)
	case verbs.OpRDMARead:
		b.RDMARead(wr.WRID, wr.Flags, wr.Remote, g)
	default:
		b.Add(*wr)
	}
}

// receive posts receives of the responder.
func (p *pair) receive(wrs ...verbs.RecvWR) error { return p.b.post(wrs...) }

func (e *end) post(wrs ...verbs.RecvWR) error {
	post := e.qp.PostRecv
	if e.srq != nil {
		post = e.srq.PostRecv
	}
	n, err := post(wrs...)
	if err == nil && n != len(wrs) {
		err = fmt.Errorf("posted %d of %d receives", n, len(wrs))
	}
	return err
}

// reset moves both QPs to RESET, and connects them again.
func (p *pair) reset() error {
	for _, e := range []*end{p.a, p.b} {
		if err := e.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState); err != nil {
			return err
		}
	}
	return p.connect()
}

func (e *end) fail() error {
	return e.qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
}
