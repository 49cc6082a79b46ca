package conformance

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestCQ(t *testing.T) {
	c := rdmatest.Open(t)
	attr := rdmatest.Must(c.QueryDevice())(t)
	ch := rdmatest.Must(c.CreateCompChannel())(t)
	last := min(c.NumCompVectors(), 2) - 1
	for _, o := range []verbs.CQOptions{ // the large ones take long, and so each is made once
		{MaxCQE: 1}, {MaxCQE: 1, Channel: ch}, {MaxCQE: 1, Vector: last}, {MaxCQE: 1, Vector: last, Channel: ch},
		{MaxCQE: attr.MaxCQE / 2, Vector: last}, {MaxCQE: attr.MaxCQE, Channel: ch},
	} {
		cq := rdmatest.Must(c.CreateCQ(o))(t)
		if cq.MaxCQE() < o.MaxCQE {
			t.Errorf("a CQ created for %d completions has room for %d", o.MaxCQE, cq.MaxCQE())
		}
		if o.Channel != nil {
			if err := ch.Close(); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("closing a channel with a CQ: %v", err)
			}
		}
		rdmatest.Idle(t, cq)
		rdmatest.Close(t, cq)
	}
	if _, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 10, Vector: c.NumCompVectors() - 1}); err != nil {
		t.Errorf("the last completion vector: %v", err)
	}
	for _, o := range []verbs.CQOptions{
		{MaxCQE: attr.MaxCQE + 1}, {MaxCQE: 0}, {MaxCQE: -1}, {MaxCQE: 100, Vector: c.NumCompVectors()}, {MaxCQE: 100, Vector: -1},
	} {
		_, err := c.CreateCQ(o)
		wantInvalid(t, err)
	}
}

// TestCQResize shrinks and grows a CQ that has completions in it.
func TestCQResize(t *testing.T) {
	s := rdmatest.Default()
	s.CQE, s.Channel = 3, true
	p := rdmatest.NewPair(t, s)
	resize := func(n int) {
		t.Helper()
		rdmatest.Check(t, p.A.CQ.Resize(n))
		if p.A.CQ.MaxCQE() < n {
			t.Errorf("the CQ has room for %d completions, want %d", p.A.CQ.MaxCQE(), n)
		}
	}
	resize(1)
	resize(7)
	write := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, p.B.MR, 0)
	const n = 6
	for i := range n {
		// The event shows that the completion has arrived. It stays unpolled.
		rdmatest.Check(t, p.A.CQ.Arm(false))
		write.WRID = uint64(i)
		p.A.Send(t, write)
		rdmatest.Must(p.A.Chan.Wait(patience(t)))(t)
	}
	resize(12) // completions are kept
	if expect(t).shrinkFull {
		err := p.A.CQ.Resize(1)
		wantErrno(t, err, syscall.EINVAL) // they don't fit
	}
	for i, wc := range rdmatest.PollOK(t, p.A.CQ, n) {
		if wc.WRID != uint64(i) {
			t.Errorf("completion %d is of request %d", i, wc.WRID)
		}
	}
	resize(1)
	roundTrip(t, p, 1)
}

// eventsPair is a pair whose ends have completion channels.
func eventsPair(t *testing.T, typ verbs.QPType) *rdmatest.Pair {
	t.Helper()
	s := rdmatest.Default()
	s.Type, s.Channel = typ, true
	return rdmatest.NewPair(t, s)
}

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// message returns a send request for the pair's type of QP.
func message(p *rdmatest.Pair, n int) verbs.SendWR {
	return verbs.SendWR{
		Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)},
		AH: p.A.AH, RemoteQPN: p.B.QP.Num(), RemoteQKey: rdmatest.QKey,
	}
}

func TestCQEvents(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			p := eventsPair(t, typ)
			ctx := patience(t)
			for i := range 50 {
				for _, e := range []*rdmatest.End{p.A, p.B} {
					rdmatest.Check(t, e.CQ.Arm(false))
				}
				p.B.Recv(t, uint64(i), 0, 1024)
				p.A.Send(t, message(p, 64))
				for _, e := range []*rdmatest.End{p.A, p.B} {
					cq := rdmatest.Must(e.Chan.Wait(ctx))(t)
					if cq != e.CQ {
						t.Fatal("the event is for another CQ")
					}
					// The completion precedes the event.
					var wc [2]verbs.WC
					if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Err() != nil {
						t.Fatalf("after the event: %d completions, %v, %v", n, err, wc[0].Err())
					}
				}
			}
		})
	}
}

// TestPollWait waits for completions that have arrived already, that arrive later, and
// that arrive during its check. The CQs have channels of the caller's, or none.
func TestPollWait(t *testing.T) {
	for _, tt := range []struct {
		typ     verbs.QPType
		channel bool
	}{{verbs.RC, true}, {verbs.RC, false}, {verbs.UC, true}, {verbs.UD, true}, {verbs.UD, false}} {
		t.Run(fmt.Sprintf("%v, channel %t", tt.typ, tt.channel), func(t *testing.T) {
			s := rdmatest.Default()
			s.Type, s.Channel = tt.typ, tt.channel
			p := rdmatest.NewPair(t, s)
			ctx := patience(t)
			wcs := make([]verbs.WC, 4)
			for i := range 50 {
				p.B.Recv(t, uint64(i), 0, 1024)
				p.A.Send(t, message(p, 64))
				for _, e := range []*rdmatest.End{p.A, p.B} {
					n, err := e.CQ.PollWait(ctx, wcs)
					if n != 1 || err != nil || wcs[0].Err() != nil {
						t.Fatalf("%d completions, %v, %v", n, err, wcs[0].Err())
					}
				}
			}
			short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			if n, err := p.A.CQ.PollWait(short, wcs); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("without a completion: %d, %v", n, err)
			}
			// The CQ still works afterwards.
			p.B.Recv(t, 1, 0, 1024)
			p.A.Send(t, message(p, 64))
			if n, err := p.B.CQ.PollWait(ctx, wcs); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}

// TestAll loops over completions, with and without sleeping, and finds their QPs by
// their numbers. A loop that ends takes only what it has seen.
func TestAll(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	const n = 16
	var next uint64
	receive := func(end uint64) {
		t.Helper()
		for wc, err := range p.B.CQ.All(patience(t)) {
			if err != nil || wc.Err() != nil || wc.WRID != next || p.Ctx.QPByNum(wc.QPNum) != p.B.QP {
				t.Fatalf("%+v, %v, want receive %d", wc, err, next)
			}
			if next++; next == end {
				break
			}
		}
	}
	for i := range n {
		p.B.Recv(t, uint64(i), 0, 64)
		p.A.Send(t, message(p, 8))
		rdmatest.PollOK(t, p.A.CQ, 1)
		if i < n/2 {
			receive(uint64(i) + 1)
		}
	}
	receive(3 * n / 4)
	receive(n)
	rdmatest.Idle(t, p.B.CQ)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for wc, err := range p.B.CQ.All(short) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a completion: %+v, %v", wc, err)
		}
	}
	rdmatest.Close(t, p.B.QP)
	if qp := p.Ctx.QPByNum(p.B.QP.Num()); qp != nil {
		t.Errorf("the closed QP is found")
	}
}

// TestChannelDescriptor: epoll sees an event that Wait then returns.
func TestChannelDescriptor(t *testing.T) {
	p := eventsPair(t, verbs.RC)
	raw := rdmatest.Must(p.B.Chan.SyscallConn())(t)
	readable := func(patience time.Duration) (n int) {
		t.Helper()
		rdmatest.Check(t, raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			var err error
			for n, err = unix.Poll(fds, int(patience.Milliseconds())); err == unix.EINTR; n, err = unix.Poll(fds, int(patience.Milliseconds())) {
			}
			rdmatest.Check(t, err)
		}))
		return n
	}
	for i := range 5 {
		rdmatest.Check(t, p.B.CQ.Arm(false))
		if readable(0) != 0 {
			t.Error("readable without an event")
		}
		p.B.Recv(t, uint64(i), 0, 64)
		p.A.Send(t, message(p, 8))
		if readable(rdmatest.Patience) != 1 {
			t.Fatal("not readable with an event")
		}
		if cq, err := p.B.Chan.Wait(patience(t)); cq != p.B.CQ || err != nil {
			t.Errorf("%v, %v", cq, err)
		}
		rdmatest.PollOK(t, p.B.CQ, 1)
		rdmatest.PollOK(t, p.A.CQ, 1)
	}
	if _, err := p.B.CQ.PollWait(patience(t), make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("PollWait after Wait: %v", err)
	}
}

// TestSolicited: a CQ armed for solicited events ignores the other messages.
func TestSolicited(t *testing.T) {
	p := eventsPair(t, verbs.RC)
	rdmatest.Check(t, p.B.CQ.Arm(true))
	p.B.Recv(t, 1, 0, 64)
	p.B.Recv(t, 2, 64, 64)
	p.A.Send(t, message(p, 10))
	rdmatest.PollOK(t, p.B.CQ, 1)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.B.Chan.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got an event for an unsolicited message: %v", err)
	}
	wr := message(p, 10)
	wr.Flags |= verbs.SendSolicited
	p.A.Send(t, wr)
	if cq, err := p.B.Chan.Wait(patience(t)); err != nil || cq != p.B.CQ {
		t.Fatal(err)
	}
	if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.WRID != 2 {
		t.Errorf("%+v", wc)
	}
}

// TestSharedChannel: several CQs share one channel, whose events name the CQ.
func TestSharedChannel(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	ch := rdmatest.Must(p.Ctx.CreateCompChannel())(t)
	const n = 5
	cqs := make(map[*verbs.CQ]*verbs.QP)
	for range n {
		cq := rdmatest.Must(p.Ctx.CreateCQ(verbs.CQOptions{MaxCQE: 16, Channel: ch}))(t)
		qp := rdmatest.Must(p.PD.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
		cqs[cq] = qp
		// The error state flushes the receives, with a completion for each.
		a := verbs.QPAttr{State: verbs.QPInit, Port: rdmatest.Port}
		rdmatest.Check(t, qp.Modify(a, verbs.RequiredMask(verbs.RC, verbs.QPReset, verbs.QPInit)))
		rdmatest.Must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.A.MR.SGE(0, 64)}}))(t)
		rdmatest.Check(t, cq.Arm(false))
	}
	for _, qp := range cqs {
		rdmatest.Check(t, qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
	}
	for range n {
		cq := rdmatest.Must(ch.Wait(patience(t)))(t)
		qp := cqs[cq]
		if qp == nil {
			t.Fatal("a second event for a CQ, or an event for a CQ that isn't on the channel")
		}
		if wc := rdmatest.Poll(t, cq, 1)[0]; wc.QPNum != qp.Num() || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("%+v", wc)
		}
		delete(cqs, cq)
	}
}
