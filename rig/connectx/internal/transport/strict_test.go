package transport_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// strict is a pair whose violations are counted.
func strict(t *testing.T) (p *pair, violations *[]error) {
	violations = new([]error)
	return newPair(t, transport.RC, loop.Options{Violation: func(err error) { *violations = append(*violations, err) }}, nil), violations
}

// wants fails the test unless there is a violation that contains text.
func wants(t *testing.T, violations *[]error, what, text string) {
	t.Helper()
	if v := *violations; len(v) == 0 || !strings.Contains(v[0].Error(), text) {
		t.Errorf("%s: violations %v", what, v)
	}
}

// Doorbell records are 16-bit counters, those of CQs 24-bit. They wrap.
func TestRecords(t *testing.T) {
	p, violations := strict(t)
	for i := range 70000 {
		p.b.PostRecv(nil)
		p.a.PostRing(loop.WQE(loop.Send, 0, 0))
		if i%32 == 0 {
			p.w.Idle(loop.Second, nil)
			for _, ok := p.b.Recv.Poll(); ok; _, ok = p.b.Recv.Poll() {
			}
		}
	}
	p.w.Idle(loop.Second, nil)
	if len(*violations) > 0 {
		t.Fatal(*violations)
	}

	p, violations = strict(t)
	_, record := p.a.Records()
	p.b.PostRecv(nil)
	p.a.Post(loop.WQE(loop.Send, loop.Signaled, 0))
	bus.Store32(record, 0x10001)
	p.a.Bell(0)
	p.w.Idle(loop.Second, nil)
	wants(t, violations, "a send queue", "0x10001")

	p, violations = strict(t)
	record, _ = p.b.Records()
	p.b.PostRecv(nil)
	bus.Store32(record, 0x80000001)
	p.a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
	p.w.Idle(loop.Second, nil)
	wants(t, violations, "a receive queue", "0x80000001")

	p, violations = strict(t)
	s := p.a.H.NewSRQ(4, transport.SRQContext{})
	s.Post(nil)
	bus.Store32(s.Record(), 0x10001)
	if _, ok := p.a.H.Engine.QuerySRQ(s.Number); !ok {
		t.Fatal("no SRQ")
	}
	wants(t, violations, "an SRQ", "SRQ")

	// The record is read when the queue seems half full.
	p, violations = strict(t)
	c := p.a.H.NewCQ(2, cq.Size64)
	bus.Store32(c.Record(), 0x1000000)
	for range 3 {
		c.Q.Post(&cq.Completion{}, 0)
	}
	wants(t, violations, "a CQ", "24 bits")
}

// The links of an SRQ's list must stay within the queue.
func TestLinks(t *testing.T) {
	p, violations := strict(t)
	h := p.b.H
	s := h.NewSRQ(4, transport.SRQContext{})
	a := p.a.H.NewQP(p.a.Send, p.a.Recv, transport.QPContext{})
	b := h.NewQP(p.b.Send, p.b.Recv, transport.QPContext{RQType: transport.SharedRQ, SRQN: s.Number})
	loop.Connect(a, b, nil)
	s.Link(s.Post(nil), 16)
	a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
	p.want(p.a.Send, cq.Requester, 0, 0)
	wants(t, violations, "a link", "beyond")
}

// A doorbell must follow its record, and must go through the queue's own UAR.
func TestDoorbells(t *testing.T) {
	p, violations := strict(t)
	p.b.PostRecv(nil)
	p.a.Post(loop.WQE(loop.Send, loop.Signaled, 0))
	p.a.Bell(0)
	p.w.Idle(loop.Second, nil)
	if v := *violations; len(v) != 1 || !strings.Contains(v[0].Error(), "record ends before") {
		t.Errorf("a doorbell before its record: %v", v)
	}
	*violations = nil
	p.a.Bell(5)
	if v := *violations; len(v) != 1 || !strings.Contains(v[0].Error(), "UAR 0x5") {
		t.Errorf("a doorbell through another UAR: %v", v)
	}
	*violations = nil
	p.a.Ring()
	p.want(p.a.Send, cq.Requester, 0, 0)
	if v := *violations; len(v) != 0 {
		t.Errorf("a doorbell: %v", v)
	}
}

// A WQE without a doorbell isn't sent, even if the record includes it.
func TestUnrungWQE(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	p.b.PostRecv(nil)
	p.b.PostRecv(nil)
	p.a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
	p.a.Post(loop.WQE(loop.Send, loop.Signaled, 0))
	_, record := p.a.Records()
	bus.Store32(record, 2)
	p.want(p.a.Send, cq.Requester, 0, 0)
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	p.quiet()
	p.a.Bell(0)
	p.want(p.a.Send, cq.Requester, 0, 1)
}

// A copy is executed instead of the WQE in the ring. It is ignored if another doorbell
// made the HCA execute that WQE already.
func TestCopies(t *testing.T) {
	p, violations := strict(t)
	for i := range 6 {
		p.b.PostRecv(loop.Data(nil, p.bAddr+uint64(i)*256, 256, p.b.H.Lkey))
	}
	data := bytes.Repeat([]byte("copied"), 20)
	wqe := loop.Inline(loop.WQE(loop.Send, loop.Signaled, 0), data)
	p.a.Post(wqe)
	p.a.Flame(wqe)
	p.want(p.a.Send, cq.Requester, 0, 0)
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	if n := p.a.H.Engine.Copies(); n != 1 || len(*violations) > 0 {
		t.Fatalf("%d copies executed, violations %v", n, *violations)
	}
	if !bytes.Equal(p.bBuf[:len(data)], data) {
		t.Error("the data is something else")
	}

	// The WQE at 3 is executed before its copy arrives.
	wqe = loop.Inline(loop.WQE(loop.Send, loop.Signaled, 0), data)
	index := p.a.PostRing(wqe)
	p.want(p.a.Send, cq.Requester, 0, index)
	old := bytes.Clone(wqe)
	old[20] ^= 1
	p.a.Flame(old)
	p.w.Idle(loop.Second, nil)
	if n := p.a.H.Engine.Copies(); n != 1 || len(*violations) > 0 {
		t.Fatalf("%d copies executed, violations %v", n, *violations)
	}

	// The copy is executed.
	wqe = loop.Inline(loop.WQE(loop.Send, loop.Signaled, 0), data)
	index = p.a.Post(wqe)
	other := bytes.Clone(wqe)
	other[100] = 'X'
	p.a.Flame(other)
	p.want(p.a.Send, cq.Requester, 0, index)
	if n := p.a.H.Engine.Copies(); n != 2 || len(*violations) != 1 || !strings.Contains((*violations)[0].Error(), "not what is in the ring") {
		t.Fatalf("%d copies executed, violations %v", n, *violations)
	}
	if got := p.bBuf[2*256+100-20]; got != 'X' {
		t.Errorf("%q was sent", got)
	}
}

// If a GRH is required, packets without one aren't sent.
func TestGRHRequired(t *testing.T) {
	for _, grh := range []bool{true, false} {
		p := newPair(t, transport.RC, loop.Options{GRHRequired: true}, func(q *loop.QP, c *transport.QPContext) {
			c.Primary.GRH, c.Primary.AckTimeout, c.RetryCount = grh, 1, 1
			c.Primary.DGID = q.H.W.HCAs[0].Port.GID()
			if q.H == q.H.W.HCAs[0] {
				c.Primary.DGID = q.H.W.HCAs[1].Port.GID()
			}
		})
		p.b.PostRecv(nil)
		p.a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
		if grh {
			p.want(p.a.Send, cq.Requester, 0, 0)
			p.want(p.b.Recv, cq.ResponderSend, 0, 0)
		} else {
			p.want(p.a.Send, cq.RequesterError, cq.SyndromeRetryExceeded, 0)
		}
	}
}

// The requester's log_sra_max limits its outstanding reads, and the responder refuses more
// than its log_rra_max.
func TestReadsAtOnce(t *testing.T) {
	for _, c := range []struct {
		sra, rra uint8
		ok       bool
	}{{2, 2, true}, {2, 3, true}, {3, 2, false}} {
		p := newPair(t, transport.RC, loop.Options{}, func(q *loop.QP, a *transport.QPContext) {
			// The other direction isn't used.
			a.LogSRAMax, a.LogRRAMax = c.sra, 7
			if q.H == q.H.W.HCAs[1] {
				a.LogSRAMax, a.LogRRAMax = 7, c.rra
			}
		})
		var last uint16
		for range 20 {
			last = p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 4096, p.a.H.Lkey))
		}
		p.a.Ring()
		if !c.ok {
			e := p.one(p.a.Send)
			for e.Kind() == cq.Requester {
				e = p.one(p.a.Send)
			}
			if e.Syndrome() != cq.SyndromeRemoteInvalReq || e.Counter() < 1<<c.rra {
				t.Errorf("the first that failed: %v", &e)
			}
			continue
		}
		for i := range last + 1 {
			p.want(p.a.Send, cq.Requester, 0, i)
		}
		p.quiet()
	}
}

// CQEs of version 0 have the number of a receive's SRQ, or 0. Those of version 1 have the
// QP's user index.
func TestNames(t *testing.T) {
	for _, numbered := range []bool{false, true} {
		p := newPair(t, transport.RC, loop.Options{Numbered: numbered}, nil)
		s := p.b.H.NewSRQ(4, transport.SRQContext{})
		a := p.a.H.NewQP(p.a.Send, p.a.Recv, transport.QPContext{UserIndex: 0x123})
		b := p.b.H.NewQP(p.b.Send, p.b.Recv, transport.QPContext{UserIndex: 0x456, RQType: transport.SharedRQ, SRQN: s.Number})
		loop.Connect(a, b, nil)
		s.Post(nil)
		a.PostRing(loop.WQE(loop.Send, loop.Signaled, 0))
		sent, received := p.want(p.a.Send, cq.Requester, 0, 0), p.want(p.b.Recv, cq.ResponderSend, 0, 0)
		wantSent, wantReceived := uint32(0x123), uint32(0x456)
		if numbered {
			wantSent, wantReceived = 0, s.Number
		}
		if sent.Index() != wantSent || received.Index() != wantReceived || sent.QPN() != a.Number || received.QPN() != b.Number {
			t.Errorf("numbered %t: %#x of %#x, %#x of %#x", numbered, sent.Index(), sent.QPN(), received.Index(), received.QPN())
		}
	}
}

// What a card would read differently from what the driver meant is a violation: more segments or
// inline bytes than their fields hold, and inline data in the place of an answer.
func TestMisreadWQEs(t *testing.T) {
	whole := func(b []byte, index, number uint32) []byte {
		b[1], b[2] = byte(index>>8), byte(index)
		b[4], b[5], b[6], b[7] = byte(number>>16), byte(number>>8), byte(number), byte((len(b)+15)/16)
		return b
	}
	for what, tt := range map[string]struct {
		wqe  []byte
		ds   byte
		want string
	}{
		"64 segments":    {loop.WQE(loop.Send, loop.Signaled, 0), 0x41, "number of its segments"},
		"inline of 1 KB": {append(loop.WQE(loop.Send, loop.Signaled, 0), 0x80, 0, 4, 4, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0), 0, "inline data of 1028 bytes"},
		"inline read":    {loop.Inline(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), 0, 0), []byte{1, 2, 3, 4}), 0, "an answer"},
	} {
		p, violations := strict(t)
		p.b.PostRecv(nil)
		b := whole(tt.wqe, 0, p.a.Number)
		if tt.ds != 0 {
			b[7] = tt.ds
		}
		p.a.PostRaw(b)
		p.a.Ring()
		p.w.Idle(loop.Second, nil)
		wants(t, violations, what, tt.want)
	}
}
