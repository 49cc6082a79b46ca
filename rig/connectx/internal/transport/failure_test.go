package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// events returns the types of an HCA's events so far.
func events(h *loop.HCA) (types []uint8) {
	for _, e := range h.Events {
		types = append(types, e.Type)
	}
	return types
}

// Each way in which a request of an RC queue pair fails: the requester's completion, the
// responder's completion, and the responder's asynchronous event.
func TestSyndromes(t *testing.T) {
	const (
		none = 0
	)
	readOnly := func(h *loop.HCA) uint32 {
		return h.Key(mkey.Context{Mode: mkey.PA, Length64: true, PD: loop.PD, QPN: mkey.AnyQP, Access: mkey.LocalRead | mkey.RemoteRead})
	}
	otherPD := func(h *loop.HCA) uint32 {
		return h.Key(mkey.Context{Mode: mkey.PA, Length64: true, PD: loop.PD + 1, QPN: mkey.AnyQP, Access: 0x1f})
	}
	for _, c := range []struct {
		name      string
		wqe       func(p *pair) []byte
		recv      func(p *pair) []byte
		change    func(q *loop.QP, c *transport.QPContext)
		requester uint8
		responder uint8
		event     uint8
		timeouts  uint32
	}{
		{name: "message longer than the receive buffer",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 5000, p.a.H.Lkey) },
			recv:      func(p *pair) []byte { return loop.Data(nil, p.bAddr, 4000, p.b.H.Lkey) },
			requester: cq.SyndromeRemoteInvalReq, responder: cq.SyndromeLocalLength},
		{name: "receive buffer of a key without local write",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, p.a.H.Lkey) },
			recv:      func(p *pair) []byte { return loop.Data(nil, p.bAddr, 8, readOnly(p.b.H)) },
			requester: cq.SyndromeRemoteOp, responder: cq.SyndromeLocalProt},
		{name: "receive buffer of another PD",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, p.a.H.Lkey) },
			recv:      func(p *pair) []byte { return loop.Data(nil, p.bAddr, 8, otherPD(p.b.H)) },
			requester: cq.SyndromeRemoteOp, responder: cq.SyndromeLocalProt},
		{name: "send from a key that does not exist",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, 0xabcd00) },
			requester: cq.SyndromeLocalProt},
		{name: "send from a key of another PD",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, otherPD(p.a.H)) },
			requester: cq.SyndromeLocalProt},
		{name: "the reserved key without the right to it",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, mkey.ReservedLkey) },
			requester: cq.SyndromeLocalProt},
		{name: "message longer than log_msg_max",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 1<<16+1, p.a.H.Lkey) },
			change:    func(q *loop.QP, c *transport.QPContext) { c.LogMsgMax = 16 },
			requester: cq.SyndromeLocalLength},
		{name: "a data segment of length 0, which is 2 GiB",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 0, p.a.H.Lkey) },
			requester: cq.SyndromeLocalLength},
		{name: "unknown opcode",
			wqe:       func(p *pair) []byte { return loop.WQE(0x3f, 0, 0) },
			requester: cq.SyndromeLocalQPOp},
		{name: "write without its address",
			wqe:       func(p *pair) []byte { return loop.WQE(loop.Write, 0, 0) },
			requester: cq.SyndromeLocalQPOp},
		{name: "inline data beyond the WQE",
			wqe: func(p *pair) []byte {
				return append(loop.WQE(loop.Send, 0, 0), 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			},
			requester: cq.SyndromeLocalQPOp},
		{name: "write to a key that does not exist",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), p.bAddr, 0xabcd00), p.aAddr, 8, p.a.H.Lkey)
			},
			requester: cq.SyndromeRemoteAccess, event: eq.TypeQPAccess},
		{name: "write to a key without remote write",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), p.bAddr, readOnly(p.b.H)), p.aAddr, 8, p.a.H.Lkey)
			},
			requester: cq.SyndromeRemoteAccess, event: eq.TypeQPAccess},
		{name: "write beyond the memory",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), 1<<50, p.b.H.Lkey), p.aAddr, 8, p.a.H.Lkey)
			},
			requester: cq.SyndromeRemoteAccess, event: eq.TypeQPAccess},
		{name: "write to a queue pair that takes none",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 8, p.a.H.Lkey)
			},
			change:    func(q *loop.QP, c *transport.QPContext) { c.RWE = false },
			requester: cq.SyndromeRemoteInvalReq, event: eq.TypeQPRequest},
		{name: "read of a queue pair that gives none",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Read, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 8, p.a.H.Lkey)
			},
			change:    func(q *loop.QP, c *transport.QPContext) { c.RRE = false },
			requester: cq.SyndromeRemoteInvalReq, event: eq.TypeQPRequest},
		{name: "read of a key that is not remote",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Read, 0, 0), p.bAddr, otherPD(p.b.H)), p.aAddr, 8, p.a.H.Lkey)
			},
			requester: cq.SyndromeRemoteAccess, event: eq.TypeQPAccess},
		{name: "read into a key without local write",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Raddr(loop.WQE(loop.Read, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 8, readOnly(p.a.H))
			},
			requester: cq.SyndromeLocalProt},
		{name: "atomic on a queue pair that takes none",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.FA, 0, 0), p.bAddr, p.b.H.Lkey), 1, 0), p.aAddr, 8, p.a.H.Lkey)
			},
			change:    func(q *loop.QP, c *transport.QPContext) { c.RAE = false },
			requester: cq.SyndromeRemoteInvalReq, event: eq.TypeQPRequest},
		{name: "atomic at an odd address",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.FA, 0, 0), p.bAddr+4, p.b.H.Lkey), 1, 0), p.aAddr, 8, p.a.H.Lkey)
			},
			requester: cq.SyndromeRemoteInvalReq, event: eq.TypeQPRequest},
		{name: "atomic on a key without the right",
			wqe: func(p *pair) []byte {
				return loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.FA, 0, 0), p.bAddr, readOnly(p.b.H)), 1, 0), p.aAddr, 8, p.a.H.Lkey)
			},
			requester: cq.SyndromeRemoteAccess, event: eq.TypeQPAccess},
		{name: "invalidation of a key that does not exist",
			wqe:       func(p *pair) []byte { return loop.WQE(loop.LocalInv, 0, 0xabcd00) },
			requester: cq.SyndromeMWBind},
		{name: "UMR of a key that does not exist",
			wqe:       func(p *pair) []byte { return append(loop.WQE(loop.UMR, 0, 0xabcd00), make([]byte, 112)...) },
			requester: cq.SyndromeMWBind},
		{name: "send with invalidation of a key that does not exist",
			wqe:       func(p *pair) []byte { return loop.WQE(loop.SendInv, 0, 0xabcd00) },
			recv:      func(p *pair) []byte { return nil },
			requester: cq.SyndromeRemoteAccess, responder: cq.SyndromeLocalAccess},
		{name: "no receive WQE, and no patience",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, p.a.H.Lkey) },
			change:    func(q *loop.QP, c *transport.QPContext) { c.RNRRetry = 2 },
			requester: cq.SyndromeRNRExceeded},
		{name: "nobody there",
			wqe:       func(p *pair) []byte { return loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, p.a.H.Lkey) },
			change:    func(q *loop.QP, c *transport.QPContext) { c.Primary.DLID = 0x4000 },
			requester: cq.SyndromeRetryExceeded, timeouts: 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, transport.RC, loop.Options{}, c.change)
			p.timeouts = c.timeouts
			if c.recv != nil {
				p.b.PostRecv(c.recv(p))
				p.b.PostRecv(loop.Data(nil, p.bAddr, 8, p.b.H.Lkey))
			}
			// The WQEs are unsignaled. Errors complete even so, and so do the WQEs
			// that are flushed after one. The WQE before it succeeds.
			p.a.Post(loop.WQE(loop.Nop, 0, 0))
			x := p.a.Post(c.wqe(p))
			y := p.a.PostRing(loop.WQE(loop.Nop, 0, 0))
			p.want(p.a.Send, cq.RequesterError, c.requester, x)
			p.want(p.a.Send, cq.RequesterError, cq.SyndromeFlush, y)
			if s := p.a.State(); s != transport.Err {
				t.Errorf("requester's state %d", s)
			}
			if c.responder != none {
				p.want(p.b.Recv, cq.ResponderError, c.responder, 0)
				p.want(p.b.Recv, cq.ResponderError, cq.SyndromeFlush, 1)
			}
			p.quiet()
			got := events(p.b.H)
			if c.event == none && len(got) > 0 || c.event != none && (len(got) != 1 || got[0] != c.event) {
				t.Errorf("events %#x, want %#x", got, c.event)
			}
			if c.event != none && binary.BigEndian.Uint32(p.b.H.Events[0].Data[24:]) != p.b.Number {
				t.Errorf("event of another queue pair: % x", p.b.H.Events[0].Data)
			}
			wantErr := c.event != none || c.responder != none
			if s := p.b.State(); (s == transport.Err) != wantErr {
				t.Errorf("responder's state %d", s)
			}
		})
	}
}

func TestControlSegmentIsChecked(t *testing.T) {
	for name, damage := range map[string]func(b []byte){
		"no size":          func(b []byte) { b[7] = 0 },
		"more than posted": func(b []byte) { b[7] = 9 },
		"another index":    func(b []byte) { b[2]++ },
		"another queue":    func(b []byte) { b[6]++ },
	} {
		// A doorbell with another index is also a violation.
		var violations []error
		p := newPair(t, transport.RC, loop.Options{Violation: func(err error) { violations = append(violations, err) }}, nil)
		b := loop.WQE(loop.Nop, 0, 0)
		binary.BigEndian.PutUint32(b[4:], p.a.Number<<8|1)
		damage(b)
		p.a.PostRaw(b)
		// The doorbell names the right queue pair, whatever the WQE has.
		p.a.Ring()
		bell := make([]byte, 8)
		binary.BigEndian.PutUint32(bell[4:], p.a.Number<<8|1)
		p.a.H.Engine.Doorbell(0, 0x900, bell)
		t.Run(name, func(t *testing.T) {
			p.T = t
			p.want(p.a.Send, cq.RequesterError, cq.SyndromeLocalQPOp, 0)
			p.quiet()
			if (len(violations) > 0) != (name == "another index") {
				t.Error(violations)
			}
		})
	}
}

func TestFlush(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	// WQEs in execution, begun and not begun are all flushed, in order.
	p.b.H.Port.SetUp(false)
	var x []uint16
	for range 30 {
		x = append(x, p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 100000, p.a.H.Lkey)))
	}
	p.a.Ring()
	for range 3 {
		p.a.PostRecv(nil)
		p.w.Step()
	}
	if err := p.a.H.Engine.ModifyQP(p.a.Number, transport.ToErr, 0, nil); err != nil {
		t.Fatal(err)
	}
	for _, i := range x {
		p.want(p.a.Send, cq.RequesterError, cq.SyndromeFlush, i)
	}
	for i := range uint16(3) {
		p.want(p.a.Recv, cq.ResponderError, cq.SyndromeFlush, i)
	}
	// WQEs that are posted later are flushed too.
	y := p.a.PostRing(loop.WQE(loop.Nop, 0, 0))
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeFlush, y)
	p.w.Idle(loop.Second, nil)
	p.a.PostRecv(nil)
	p.want(p.a.Recv, cq.ResponderError, cq.SyndromeFlush, 3)
	// After a reset, it works again.
	p.b.H.Port.SetUp(true)
	p.a.Reset()
	p.b.Reset()
	loop.Connect(p.a, p.b, nil)
	p.b.PostRecv(loop.Data(nil, p.bAddr, 8, p.b.H.Lkey))
	z := p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), p.aAddr, 8, p.a.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, z)
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	p.quiet()
}

func TestRNRWaitsForAWQE(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	x := p.a.PostRing(loop.Data(loop.WQE(loop.SendImm, loop.Signaled, 9), p.aAddr, 3000, p.a.H.Lkey))
	p.w.Idle(5*loop.Second, nil)
	if n := p.a.H.Engine.Counters(0).RNRNakRetryErr; n < 100 {
		t.Errorf("%d RNR NAKs in 5 s, with a timer of 0.64 ms", n)
	}
	p.b.PostRecv(loop.Data(nil, p.bAddr, 3000, p.b.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	if e := p.want(p.b.Recv, cq.ResponderSendImm, 0, 0); e.Length() != 3000 || e.Imm() != 9 {
		t.Error(e.String())
	}
	p.quiet()
}

func TestUnreliableFailures(t *testing.T) {
	p := newPair(t, transport.UC, loop.Options{}, nil)
	// No receive buffer, or an invalid key: UC reports neither.
	x := p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), p.aAddr, 5000, p.a.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	x = p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), p.bAddr, 0xabcd00), p.aAddr, 5000, p.a.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	p.b.PostRecv(loop.Data(nil, p.bAddr, 5000, p.b.H.Lkey))
	x = p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), p.aAddr, 5000, p.a.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	// A local error doesn't affect the responder.
	x = p.a.PostRing(loop.Data(loop.WQE(loop.Send, 0, 0), p.aAddr, 8, 0xabcd00))
	y := p.a.PostRing(loop.WQE(loop.Nop, 0, 0))
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeLocalProt, x)
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeFlush, y)
	if s := p.a.State(); s != transport.SQEr {
		t.Errorf("state %d, want %d", s, transport.SQEr)
	}
	if err := p.a.H.Engine.ModifyQP(p.a.Number, transport.SQErr2RTS, 0, &transport.QPContext{}); err != nil {
		t.Fatal(err)
	}
	x = p.a.PostRing(loop.WQE(loop.Nop, loop.Signaled, 0))
	p.want(p.a.Send, cq.Requester, 0, x)
	p.quiet()
}

func TestDrain(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	x := p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 1<<20, p.a.H.Lkey))
	p.w.Step()
	if err := p.a.H.Engine.ModifyQP(p.a.Number, transport.RTS2SQD, 0, &transport.QPContext{}); err != nil {
		t.Fatal(err)
	}
	y := p.a.PostRing(loop.WQE(loop.Nop, loop.Signaled, 0))
	if n := count(events(p.a.H), eq.TypeSQDrained); n != 0 {
		t.Error("drained with a message under way")
	}
	// Begun WQEs complete, and no other is begun.
	p.want(p.a.Send, cq.Requester, 0, x)
	p.quiet()
	if n := count(events(p.a.H), eq.TypeSQDrained); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	if err := p.a.H.Engine.ModifyQP(p.a.Number, transport.SQD2RTS, 0, &transport.QPContext{}); err != nil {
		t.Fatal(err)
	}
	p.want(p.a.Send, cq.Requester, 0, y)
}

func TestCompletionsLost(t *testing.T) {
	w := loop.New(2, loop.Options{})
	h, g := w.HCAs[0], w.HCAs[1]
	small := h.NewCQ(1, cq.Size64)
	a := h.NewQP(small, small, transport.QPContext{Service: transport.RC})
	b := g.NewQP(g.NewCQ(6, cq.Size64), g.NewCQ(6, cq.Size64), transport.QPContext{Service: transport.RC})
	loop.Connect(a, b, nil)
	for range 3 {
		a.Post(loop.WQE(loop.Nop, loop.Signaled, 0))
	}
	a.Ring()
	w.Idle(loop.Second, nil)
	if len(small.Errors) != 1 || count(events(h), eq.TypeQPFatal) != 1 || a.State() != transport.Err {
		t.Errorf("CQ errors %v, events %#x, state %d", small.Errors, events(h), a.State())
	}
}

func TestTransitions(t *testing.T) {
	w := loop.New(1, loop.Options{})
	h := w.HCAs[0]
	q := h.NewQP(h.NewCQ(4, cq.Size64), h.NewCQ(4, cq.Size64), transport.QPContext{Service: transport.RC})
	c := loop.Attributes(q)
	all := []transport.Transition{transport.Rst2Init, transport.Init2Init, transport.Init2RTR, transport.RTR2RTS, transport.RTS2RTS, transport.SQErr2RTS, transport.RTS2SQD, transport.SQD2RTS}
	// The transitions that each state allows, and the resulting states.
	for _, s := range []struct {
		state transport.State
		may   map[transport.Transition]transport.State
	}{
		{transport.Reset, map[transport.Transition]transport.State{transport.Rst2Init: transport.Init}},
		{transport.Init, map[transport.Transition]transport.State{transport.Init2Init: transport.Init, transport.Init2RTR: transport.RTR}},
		{transport.RTR, map[transport.Transition]transport.State{transport.RTR2RTS: transport.RTS}},
		{transport.RTS, map[transport.Transition]transport.State{transport.RTS2RTS: transport.RTS, transport.RTS2SQD: transport.SQD}},
		{transport.SQD, map[transport.Transition]transport.State{transport.SQD2RTS: transport.RTS}},
		{transport.Err, nil},
	} {
		for _, op := range all {
			q.Reset()
			path := []transport.Transition{transport.Rst2Init, transport.Init2RTR, transport.RTR2RTS, transport.RTS2SQD}
			for _, step := range path {
				if q.State() == s.state || s.state == transport.Err {
					break
				}
				if err := h.Engine.ModifyQP(q.Number, step, 0, &c); err != nil {
					t.Fatal(err)
				}
			}
			if s.state == transport.Err {
				if err := h.Engine.ModifyQP(q.Number, transport.ToErr, 0, nil); err != nil {
					t.Fatal(err)
				}
			}
			err := h.Engine.ModifyQP(q.Number, op, 0, &c)
			if to, ok := s.may[op]; ok && (err != nil || q.State() != to) {
				t.Errorf("%#x in state %d: %v, state %d, want %d", op, s.state, err, q.State(), to)
			} else if !ok && (err != transport.ErrBadState || q.State() != s.state) {
				t.Errorf("%#x in state %d: %v, state %d", op, s.state, err, q.State())
			}
		}
	}
	q.Reset()
	c.MTU = 7
	h.Engine.ModifyQP(q.Number, transport.Rst2Init, 0, &c)
	if err := h.Engine.ModifyQP(q.Number, transport.Init2RTR, 0, &c); err != transport.ErrBadParam {
		t.Errorf("MTU 7: %v", err)
	}
}

func TestRNROfImmediate(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	w := loop.Raddr(loop.WQE(loop.WriteImm, loop.Signaled, 7), p.bAddr, p.b.H.Lkey)
	x := p.a.PostRing(loop.Data(w, p.aAddr, 3000, p.a.H.Lkey))
	p.w.Idle(loop.Second/100, nil)
	if p.a.H.Engine.Counters(0).RNRNakRetryErr == 0 {
		t.Error("the immediate did not need a receive WQE")
	}
	p.b.PostRecv(nil)
	p.want(p.a.Send, cq.Requester, 0, x)
	if e := p.want(p.b.Recv, cq.ResponderWriteImm, 0, 0); e.Length() != 3000 || e.Imm() != 7 || !bytes.Equal(p.bBuf[:3000], p.aBuf[:3000]) {
		t.Error(e.String())
	}
	p.quiet()
}

// A queue pair with much data doesn't delay the others.
func TestTurns(t *testing.T) {
	w := loop.New(2, loop.Options{})
	h, g := w.HCAs[0], w.HCAs[1]
	pair := func() (*loop.QP, *loop.QP) {
		a := h.NewQP(h.NewCQ(6, cq.Size64), h.NewCQ(6, cq.Size64), transport.QPContext{Service: transport.RC})
		b := g.NewQP(g.NewCQ(6, cq.Size64), g.NewCQ(6, cq.Size64), transport.QPContext{Service: transport.RC})
		loop.Connect(a, b, nil)
		return a, b
	}
	big, _ := pair()
	small, _ := pair()
	src, _ := h.Alloc(1 << 20)
	dst, _ := g.Alloc(1 << 20)
	write := func(q *loop.QP, n int) {
		q.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), dst, g.Lkey), src, n, h.Lkey))
	}
	for range 16 {
		write(big, 1<<20)
	}
	before := w.Steps
	write(small, 8)
	if !w.Idle(loop.Second, func() bool { _, ok := small.Send.Poll(); return ok }) {
		t.Fatal("no completion")
	}
	if n := w.Steps - before; n > 20 {
		t.Errorf("8 bytes took %d rounds", n)
	}
	if _, ok := big.Send.Poll(); ok {
		t.Error("16 MiB took no longer than 8 bytes")
	}
}

// A refused request doesn't discard the responses to earlier ones.
func TestRefusedAfterReads(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	read := func(rkey uint32) {
		p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), p.bAddr, rkey), p.aAddr, 3000, p.a.H.Lkey))
	}
	read(p.b.H.Lkey)
	read(p.b.H.Lkey)
	read(p.b.H.Lkey ^ 0xff)
	p.a.Ring()
	p.want(p.a.Send, cq.Requester, 0, 0)
	p.want(p.a.Send, cq.Requester, 0, 1)
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeRemoteAccess, 2)
}

// With Hurry, a queue pair gives up sooner, after the same number of retries. Short timers
// stay as they are.
func TestHurry(t *testing.T) {
	for _, c := range []struct {
		timeout uint8
		hurry   int
		want    time.Duration // of a retry
	}{
		{14, 1, timeoutOf(14)}, {14, 8, timeoutOf(14) / 8}, {18, 8, timeoutOf(18) / 8}, {14, 1000, 8 * time.Millisecond}, {8, 8, timeoutOf(8)},
	} {
		p := newPair(t, transport.RC, loop.Options{Hurry: c.hurry}, func(q *loop.QP, a *transport.QPContext) {
			a.Primary.AckTimeout, a.RetryCount = c.timeout, 3
		})
		p.b.H.Port.SetUp(false)
		begin := p.w.Now
		p.a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
		p.want(p.a.Send, cq.RequesterError, cq.SyndromeRetryExceeded, 0)
		if took, want := p.w.Now-begin, 4*c.want; took < want || took > want+time.Millisecond {
			t.Errorf("timeout %d, hurry %d: %v, want %v", c.timeout, c.hurry, took, want)
		}
	}
	// The same with RNR NAKs, 655 ms each.
	for hurry, want := range map[int]time.Duration{1: 655360 * time.Microsecond, 16: 655360 * time.Microsecond / 16} {
		p := newPair(t, transport.RC, loop.Options{Hurry: hurry}, func(q *loop.QP, a *transport.QPContext) {
			a.MinRNRNak, a.RNRRetry = 0, 2
		})
		begin := p.w.Now
		p.a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
		p.want(p.a.Send, cq.RequesterError, cq.SyndromeRNRExceeded, 0)
		if took := p.w.Now - begin; took < 2*want || took > 2*want+time.Millisecond {
			t.Errorf("hurry %d: %v, want %v", hurry, took, 2*want)
		}
	}
}

// timeoutOf returns a queue pair's actual timeout for a timeout code.
func timeoutOf(code uint8) time.Duration { return 4 * 4096 * time.Nanosecond << code }
