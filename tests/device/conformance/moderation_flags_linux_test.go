package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestModerate: the event of a moderated CQ waits for its period, or for enough completions.
func TestModerate(t *testing.T) {
	s := rdmatest.Default()
	s.Channel = true
	p := rdmatest.NewPair(t, s)
	limits := rdmatest.Must(p.Ctx.QueryDevice())(t).CQModeration
	if !expect(t).moderation {
		if err := p.B.CQ.Moderate(2, time.Microsecond); !errors.Is(err, verbs.ErrNotSupported) || limits.MaxCQCount != 0 {
			t.Errorf("a driver without moderation reports %+v, and returns %v", limits, err)
		}
		return
	}
	period := time.Duration(limits.MaxCQPeriod) * time.Microsecond
	if limits.MaxCQCount < 8 || period < 2*time.Millisecond {
		t.Fatalf("the limits are %+v", limits)
	}
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
	defer cancel()
	// transfer sends n messages to B's CQ, which is armed, and returns how long the event took.
	transfer := func(n int) time.Duration {
		t.Helper()
		rdmatest.Check(t, p.B.CQ.Arm(false))
		for range n {
			p.B.Recv(t, 1, 0, 100)
		}
		begin := time.Now()
		for range n {
			p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 100)}})
		}
		if cq := rdmatest.Must(p.B.Chan.Wait(ctx))(t); cq != p.B.CQ {
			t.Error("the event is of another CQ")
		}
		took := time.Since(begin)
		rdmatest.PollOK(t, p.A.CQ, n)
		rdmatest.PollOK(t, p.B.CQ, n)
		return took
	}
	transfer(1)
	rdmatest.Check(t, p.B.CQ.Moderate(8, period))
	for range 5 {
		// The clocks of the device and of the guest may differ.
		if took := transfer(1); took < period/2 {
			t.Errorf("the event of one completion took %v, the period is %v", took, period)
		}
	}
	transfer(8)
	rdmatest.Check(t, p.B.CQ.Moderate(0, 0))
	transfer(1)
	wantInvalid(t, p.B.CQ.Moderate(1, period+time.Microsecond))
}

// TestBlockSelfMcast: a QP with QPBlockSelfMcast gets no multicast messages of its own
// device.
func TestBlockSelfMcast(t *testing.T) {
	p := udPair(t, true)
	options := verbs.QPOptions{Type: verbs.UD, RecvCQ: p.A.CQ, SendCQ: p.A.CQ, Cap: p.B.QP.Cap(), CreateFlags: verbs.QPBlockSelfMcast}
	qp, err := p.PD.CreateQP(options)
	if !expect(t).createFlags {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver without creation flags returns %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	rdmatest.Close(t, qp)
	cq := rdmatest.Must(p.Ctx.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	options.SendCQ, options.RecvCQ = cq, cq
	blocked := &rdmatest.End{
		CQ: cq, Spec: p.B.Spec, MR: rdmatest.Must(p.PD.AllocMR(4096, verbs.MROptions{Access: rdmatest.All}))(t),
		QP: rdmatest.Must(p.PD.CreateQP(options))(t),
	}
	p.ToRTS(t, blocked, p.A.QP.Num())

	gid, lid := multicastGroup(t, p)
	rdmatest.Check(t, p.B.QP.AttachMcast(gid, lid))
	rdmatest.Check(t, blocked.QP.AttachMcast(gid, lid))
	address := p.Address
	address.DGID, address.DLID = gid, lid
	wr := message(p, 300)
	wr.AH, wr.RemoteQPN = rdmatest.Must(p.PD.CreateAH(address))(t), 0xffffff
	blocked.Recv(t, 1, 0, 2048)
	data := fresh(p, 300, 1)
	p.B.Recv(t, 1, 0, 1024)
	p.A.Send(t, wr)
	rdmatest.PollOK(t, p.A.CQ, 1)
	wantDatagram(t, p, p.B, p.A.QP.Num(), data)
	// Messages to the QP itself arrive, and they are in order.
	own := message(p, 200)
	own.RemoteQPN = blocked.QP.Num()
	p.A.Send(t, own)
	rdmatest.PollOK(t, p.A.CQ, 1)
	if wc := rdmatest.PollOK(t, cq, 1)[0]; wc.ByteLen != verbs.GRHLen+200 {
		t.Errorf("the blocking QP received %d bytes, want %d", wc.ByteLen, verbs.GRHLen+200)
	}
	rdmatest.Idle(t, cq)
}
