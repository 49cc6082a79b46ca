package conformance

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func srqSpec() rdmatest.Spec {
	s := rdmatest.Default()
	s.SRQ = true
	return s
}

// TestSRQShared: two queue pairs take their receives from one SRQ.
func TestSRQShared(t *testing.T) {
	p := rdmatest.NewPair(t, srqSpec())
	// A second pair of QPs, whose receiver shares B's SRQ.
	newQP := func(cq *verbs.CQ, srq *verbs.SRQ) *rdmatest.End {
		t.Helper()
		qp := rdmatest.Must(p.PD.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1, MaxRecvWR: 1, MaxRecvSGE: 1}}))(t)
		return &rdmatest.End{CQ: cq, QP: qp, MR: p.A.MR, Spec: p.A.Spec}
	}
	a2, b2 := newQP(p.A.CQ, nil), newQP(p.B.CQ, p.B.SRQ)
	p.ToRTS(t, a2, b2.QP.Num())
	p.ToRTS(t, b2, a2.QP.Num())

	for i := range 40 {
		p.B.Recv(t, uint64(2*i), 0, 1024)
		p.B.Recv(t, uint64(2*i+1), 1024, 1024)
		for j, pair := range [][2]*rdmatest.End{{p.A, p.B}, {a2, b2}} {
			clear(p.B.MR.Bytes())
			rdmatest.Fill(p.A.MR.Bytes()[:600], i+j)
			pair[0].Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 600)}})
			rdmatest.PollOK(t, p.A.CQ, 1)
			wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]
			if wc.QPNum != pair[1].QP.Num() || wc.WRID != uint64(2*i+j) || wc.ByteLen != 600 {
				t.Errorf("%+v", wc)
			}
			wantArrived(t, p.B.MR.Bytes(), 1024*j, rdmatest.Pattern(600, i+j))
		}
	}
	if err := p.B.SRQ.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing an SRQ with QPs: %v", err)
	}
	if _, err := p.B.QP.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a receive on a QP with an SRQ: %v", err)
	}
}

// TestSRQRNR: an empty SRQ makes the sender retry.
func TestSRQRNR(t *testing.T) {
	s := srqSpec()
	s.A.Tune = func(a *verbs.QPAttr) { a.RNRRetry = 1 }
	p := rdmatest.NewPair(t, s)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}})
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCRNRRetryExcErr {
		t.Errorf("%v", wc.Err())
	}
}

func TestSRQLimit(t *testing.T) {
	p := rdmatest.NewPair(t, srqSpec())
	for i := range 10 {
		p.B.Recv(t, uint64(i), 64*i, 64)
	}
	events := eventsOf(t, p.Ctx)
	rdmatest.Check(t, p.B.SRQ.SetLimit(7))
	if attr, err := p.B.SRQ.Query(); err != nil || attr.Limit != 7 || attr.MaxWR < 16 || attr.MaxSGE < 4 {
		t.Errorf("%+v, %v", attr, err)
	}
	for range 4 {
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		rdmatest.PollOK(t, p.B.CQ, 1)
	}
	if e := nextEvent(t, events); e.Type != verbs.EventSRQLimitReached || e.SRQ != p.B.SRQ || e.QP != nil || e.CQ != nil {
		t.Errorf("%+v", e)
	}
	// The event comes once: it resets the limit.
	if attr, err := p.B.SRQ.Query(); err != nil || attr.Limit != 0 {
		t.Errorf("%+v, %v", attr, err)
	}
}

// TestSRQResize grows an SRQ, which keeps the receives in it.
func TestSRQResize(t *testing.T) {
	p := rdmatest.NewPair(t, srqSpec())
	attr := rdmatest.Must(p.B.SRQ.Query())(t)
	p.B.Recv(t, 1, 0, 64)
	err := p.B.SRQ.Resize(2 * attr.MaxWR)
	if !expect(t).srqResize {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver that can't resize SRQs returns %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	larger, err := p.B.SRQ.Query()
	if err != nil || larger.MaxWR < 2*attr.MaxWR {
		t.Errorf("%+v became %+v, %v", attr, larger, err)
	}
	for i := range 2*attr.MaxWR - 1 {
		p.B.Recv(t, uint64(2+i), 0, 64)
	}
	for i := range 2 * attr.MaxWR {
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{byte(i)}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.WRID != uint64(1+i) || p.B.MR.Bytes()[0] != byte(i) {
			t.Fatalf("receive %d: %+v", i, wc)
		}
	}
	// Too small for the posted receives.
	for range 20 {
		p.B.Recv(t, 1, 0, 64)
	}
	if err := p.B.SRQ.Resize(1); err == nil {
		t.Error("an SRQ with 20 receives was resized to 1")
	}
}

func TestSRQRefused(t *testing.T) {
	p := rdmatest.NewPair(t, srqSpec())
	attr := rdmatest.Must(p.Ctx.QueryDevice())(t)
	for _, o := range []verbs.SRQOptions{
		{MaxWR: 0, MaxSGE: 1}, {MaxWR: -1, MaxSGE: 1}, {MaxWR: attr.MaxSRQWR + 1, MaxSGE: 1},
		{MaxWR: 1, MaxSGE: -1}, {MaxWR: 1, MaxSGE: attr.MaxSRQSGE + 1},
	} {
		_, err := p.PD.CreateSRQ(o)
		wantInvalid(t, err)
	}
	full := 0
	for range 1000 {
		if _, err := p.A.SRQ.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}); err != nil {
			if !isFull(err) {
				t.Fatal(err)
			}
			break
		}
		full++
	}
	if full < 16 || full == 1000 {
		t.Errorf("%d receives fit in an SRQ for 16", full)
	}
}

// The adapter fails a run in which a doorbell record exceeds its 16 bits.
var _ = rdmatest.Test(TestSRQCounter, rdmatest.OnMLX5, rdmatest.Long)

// TestSRQCounter posts more receives than a 16-bit counter can count.
func TestSRQCounter(t *testing.T) {
	const batch, batches = 16, 4200
	p := rdmatest.NewPair(t, srqSpec())
	recvs, sends := make([]verbs.RecvWR, batch), make([]verbs.SendWR, batch)
	for n := range batches {
		for i := range batch {
			recvs[i] = verbs.RecvWR{WRID: uint64(n*batch + i), SGL: []verbs.SGE{p.B.MR.SGE(64*i, 64)}}
			sends[i] = verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{byte(n), byte(i)}}
		}
		p.B.PostRecv(t, recvs...)
		p.A.Send(t, sends...)
		rdmatest.PollOK(t, p.A.CQ, batch)
		for i, wc := range rdmatest.PollOK(t, p.B.CQ, batch) {
			if got := p.B.MR.Bytes()[64*i:][:2]; wc.WRID != uint64(n*batch+i) || got[0] != byte(n) || got[1] != byte(i) {
				t.Fatalf("receive %d of batch %d: %+v, %v", i, n, wc, got)
			}
		}
	}
}
