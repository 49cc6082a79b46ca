package conformance

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// lone creates a queue pair that stays in RESET.
func lone(t *testing.T, c *verbs.Device, typ verbs.QPType) *verbs.QP {
	t.Helper()
	pd := allocPD(t, c)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 100}))(t)
	qp := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: rdmatest.Default().Cap}))(t)
	return qp
}

func TestQPCreateAndQuery(t *testing.T) {
	c := rdmatest.Open(t)
	asked := rdmatest.Default().Cap
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		qp := lone(t, c, typ)
		attr, init, err := qp.Query()
		if err != nil {
			t.Fatal(err)
		}
		if qp.State() != verbs.QPReset || attr.State != verbs.QPReset || qp.Type() != typ || init.Type != typ {
			t.Errorf("%v: state %v, in the kernel %v", typ, qp.State(), attr.State)
		}
		for _, got := range []verbs.QPCap{init.Cap, qp.Cap()} {
			if got.MaxSendWR < asked.MaxSendWR || got.MaxRecvWR < asked.MaxRecvWR || got.MaxSendSGE < asked.MaxSendSGE ||
				got.MaxRecvSGE < asked.MaxRecvSGE || got.MaxInlineData < asked.MaxInlineData {
				t.Errorf("%v: requested %+v, got %+v", typ, asked, got)
			}
		}
		rdmatest.Close(t, qp)
		rdmatest.Close(t, qp)
	}
}

func TestQPIllegalCaps(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 100}))(t)
	for _, x := range []struct {
		name string
		cap  verbs.QPCap
	}{
		{"MaxSendWR", verbs.QPCap{MaxSendWR: 0xffffffff}},
		{"MaxRecvWR", verbs.QPCap{MaxRecvWR: 0xffffffff}},
		{"MaxSendSGE", verbs.QPCap{MaxSendSGE: 0xffff}},
		{"MaxRecvSGE", verbs.QPCap{MaxRecvSGE: 0xffff}},
		{"MaxInlineData", verbs.QPCap{MaxInlineData: 1 << 30}},
		{"MaxSendWR", verbs.QPCap{MaxSendWR: -1}},
	} {
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UD} {
			_, err := pd.CreateQP(verbs.QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: x.cap})
			wantInvalid(t, err)
			if err != nil && !strings.Contains(err.Error(), x.name) {
				t.Errorf("%v doesn't mention %s", err, x.name)
			}
		}
	}
}

func TestModifyUD(t *testing.T) {
	c := rdmatest.Open(t)
	qp := lone(t, c, verbs.UD)
	a := verbs.QPAttr{QKey: 0x123, Port: rdmatest.Port, SQPSN: 0x45}
	step := func(s verbs.QPState) verbs.QPAttr {
		t.Helper()
		a.State = s
		rdmatest.Check(t, qp.Modify(a, verbs.RequiredMask(verbs.UD, s-1, s)))
		got, _, err := qp.Query()
		if err != nil {
			t.Fatal(err)
		}
		if got.State != s || qp.State() != s {
			t.Fatalf("state %v, want %v", got.State, s)
		}
		return got
	}
	if got := step(verbs.QPInit); got.QKey != 0x123 {
		t.Errorf("Q_Key %#x", got.QKey)
	}
	step(verbs.QPRTR)
	if got := step(verbs.QPRTS); got.SQPSN != 0x45 {
		t.Errorf("SQ PSN %#x", got.SQPSN)
	}
	if err := qp.Modify(verbs.QPAttr{QKey: 0x80000000}, verbs.QPAttrQKey); err != nil {
		t.Errorf("a privileged Q_Key: %v", err)
	} else if got, _, err := qp.Query(); err != nil || got.QKey != 0x80000000 {
		t.Errorf("Q_Key %#x, %v", got.QKey, err)
	}
	if err := qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState); err != nil || qp.State() != verbs.QPReset {
		t.Errorf("%v, %v", qp.State(), err)
	}
}

// TestRCStates takes an RC pair through all states and queries its attributes. It does so
// twice, because a reset queue pair must be as good as new.
func TestRCStates(t *testing.T) {
	s := rdmatest.Default()
	// Different values, so that swapped attributes are noticed.
	tune := func(a *verbs.QPAttr) {
		a.Timeout, a.RetryCount, a.RNRRetry, a.MinRNRTimer = 18, 6, 7, 12
		a.MaxRDAtomic, a.MaxDestRDAtomic = 4, 8
	}
	s.A.Tune, s.B.Tune = tune, tune
	p := rdmatest.NewPair(t, s)
	for round := range 2 {
		for _, e := range []struct{ e, peer *rdmatest.End }{{p.A, p.B}, {p.B, p.A}} {
			got, _, err := e.e.QP.Query()
			if err != nil {
				t.Fatal(err)
			}
			type compared struct {
				state      verbs.QPState
				mtu        verbs.MTU
				dest       uint32
				access     verbs.AccessFlags
				ah         verbs.AHAttr
				port       int
				timeout    verbs.AckTimeout
				retry, rnr uint8
				minRNR     verbs.RNRTimer
				rd, destRD uint8
			}
			have := compared{got.State, got.PathMTU, got.DestQPN, got.Access, got.AH, got.Port, got.Timeout, got.RetryCount, got.RNRRetry, got.MinRNRTimer, got.MaxRDAtomic, got.MaxDestRDAtomic}
			want := compared{verbs.QPRTS, verbs.MTU1024, e.peer.QP.Num(), rdmatest.Default().A.QP, p.Address, rdmatest.Port, 18, 6, 7, 12, 4, 8}
			if have != want {
				t.Errorf("round %d:\n got %+v\nwant %+v", round, have, want)
			}
		}
		for i := range 40 { // more than the queues hold
			roundTrip(t, p, i)
		}
		for _, e := range []*rdmatest.End{p.A, p.B} {
			e.Recv(t, 1, 0, 64)
			rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
			if wc := rdmatest.Poll(t, e.CQ, 1)[0]; wc.Status != verbs.WCWRFlushErr {
				t.Errorf("%+v", wc)
			}
			rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
		}
		p.ToRTS(t, p.A, p.B.QP.Num())
		p.ToRTS(t, p.B, p.A.QP.Num())
	}
	roundTrip(t, p, 99)
}

// TestRecovery: after a failure, both ends are reset and work again.
func TestRecovery(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	for i := range 3 {
		bad := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, p.B.MR, 0)
		bad.Remote.RKey++
		p.A.Send(t, bad)
		if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCRemAccessErr {
			t.Fatalf("%+v", wc)
		}
		// On Linux 7.2, rxe reports the failure before it changes the state.
		for deadline := time.Now().Add(rdmatest.Patience); p.A.QP.State() != verbs.QPErr; {
			attr, _, err := p.A.QP.Query()
			rdmatest.Check(t, err)
			if attr.State != p.A.QP.State() || time.Now().After(deadline) {
				t.Fatalf("%v, and %v as it is known here", attr.State, p.A.QP.State())
			}
		}
		for _, e := range []*rdmatest.End{p.A, p.B} {
			rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
		}
		p.ToRTS(t, p.A, p.B.QP.Num())
		p.ToRTS(t, p.B, p.A.QP.Num())
		roundTrip(t, p, i)
	}
}

// TestSQDrain stops the send queue, waits for the event that it has drained, posts to
// it, and resumes it.
func TestSQDrain(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	roundTrip(t, p, 1)
	events := eventsOf(t, p.Ctx)
	err := p.A.QP.Modify(verbs.QPAttr{State: verbs.QPSQD, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify)
	if !expect(t).sqd {
		wantErrno(t, err, syscall.EINVAL)
		roundTrip(t, p, 2)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, events); e.Type != verbs.EventSQDrained || e.QP != p.A.QP {
		t.Fatalf("%+v", e)
	}
	if attr, _, err := p.A.QP.Query(); err != nil || attr.State != verbs.QPSQD || attr.SQDraining {
		t.Errorf("%v, draining %v, %v", attr.State, attr.SQDraining, err)
	}
	p.B.Recv(t, 1, 0, 64)
	p.B.Recv(t, 2, 64, 64)
	wr := verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{7}}
	p.A.Send(t, wr)
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState))
	wr.WRID, wr.Inline = 2, []byte{8}
	p.A.Send(t, wr)
	for i, wc := range rdmatest.PollOK(t, p.A.CQ, 2) {
		if wc.WRID != uint64(i+1) {
			t.Errorf("%+v", wc)
		}
	}
	rdmatest.PollOK(t, p.B.CQ, 2)
	if b := p.B.MR.Bytes(); b[0] != 7 || b[64] != 8 {
		t.Errorf("%d and %d arrived", b[0], b[64])
	}
}

func TestMaxRDAtomic(t *testing.T) {
	s := rdmatest.Default()
	tune := func(a *verbs.QPAttr) { a.MaxRDAtomic, a.MaxDestRDAtomic = 2, 12 }
	s.A.Tune, s.B.Tune = tune, tune
	p := rdmatest.NewPair(t, s)
	attr, _, err := p.A.QP.Query()
	// A driver may round up to a power of two, but no further.
	if err != nil || attr.MaxRDAtomic != 2 || attr.MaxDestRDAtomic < 12 || attr.MaxDestRDAtomic > 16 {
		t.Errorf("%d, %d, %v", attr.MaxRDAtomic, attr.MaxDestRDAtomic, err)
	}
}

// TestIllegalTransitions: the error names the mistake, and the QP's state is unchanged.
func TestIllegalTransitions(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	c := p.Ctx
	for _, x := range []struct {
		typ  verbs.QPType
		from verbs.QPState
		attr verbs.QPAttr
		mask verbs.QPAttrMask
		says []string
	}{
		{verbs.RC, verbs.QPReset, verbs.QPAttr{State: verbs.QPRTR}, verbs.RequiredMask(verbs.RC, verbs.QPInit, verbs.QPRTR), []string{"RESET", "RTR"}},
		{verbs.RC, verbs.QPReset, verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState, []string{"RESET", "RTS"}},
		{verbs.RC, verbs.QPReset, verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState, []string{"RESET", "ERR"}},
		{verbs.RC, verbs.QPReset, verbs.QPAttr{State: verbs.QPInit, Port: 1}, verbs.QPAttrState | verbs.QPAttrPort, []string{"PKEY_INDEX", "ACCESS_FLAGS"}},
		{verbs.UD, verbs.QPReset, verbs.QPAttr{State: verbs.QPInit, Port: 1}, verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex, []string{"QKEY"}},
		{verbs.UD, verbs.QPReset, verbs.QPAttr{State: verbs.QPInit, Port: 1}, verbs.RequiredMask(verbs.RC, verbs.QPReset, verbs.QPInit) | verbs.QPAttrQKey, []string{"ACCESS_FLAGS"}},
		{verbs.RC, verbs.QPReset, verbs.QPAttr{State: verbs.QPInit, Port: 9}, verbs.RequiredMask(verbs.RC, verbs.QPReset, verbs.QPInit), []string{"port 9"}},
		{verbs.RC, verbs.QPInit, verbs.QPAttr{State: verbs.QPRTR}, verbs.QPAttrState | verbs.QPAttrAV, []string{"PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"}},
		{verbs.RC, verbs.QPInit, verbs.QPAttr{State: verbs.QPRTR, PathMTU: 9, AH: p.Address}, verbs.RequiredMask(verbs.RC, verbs.QPInit, verbs.QPRTR), []string{"MTU 9"}},
		{verbs.RC, verbs.QPInit, verbs.QPAttr{State: verbs.QPRTR, PathMTU: 1, DestQPN: 1 << 24, AH: p.Address}, verbs.RequiredMask(verbs.RC, verbs.QPInit, verbs.QPRTR), []string{"24 bits"}},
		{verbs.UC, verbs.QPInit, verbs.QPAttr{State: verbs.QPRTR}, verbs.RequiredMask(verbs.RC, verbs.QPInit, verbs.QPRTR), []string{"MAX_DEST_RD_ATOMIC"}},
		{verbs.RC, verbs.QPInit, verbs.QPAttr{State: verbs.QPRTS}, verbs.RequiredMask(verbs.RC, verbs.QPRTR, verbs.QPRTS), []string{"INIT", "RTS"}},
		{verbs.RC, verbs.QPInit, verbs.QPAttr{State: 42}, verbs.QPAttrState, []string{"42"}},
		{verbs.RC, verbs.QPInit, verbs.QPAttr{}, 1 << 31, []string{"0x80000000"}},
		{verbs.RC, verbs.QPRTR, verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState | verbs.QPAttrSQPSN, []string{"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC"}},
		{verbs.RC, verbs.QPRTR, verbs.QPAttr{State: verbs.QPRTS, Timeout: 32}, verbs.RequiredMask(verbs.RC, verbs.QPRTR, verbs.QPRTS), []string{"timeout 32"}},
		{verbs.RC, verbs.QPRTR, verbs.QPAttr{State: verbs.QPSQD}, verbs.QPAttrState, []string{"RTR", "SQD"}},
		{verbs.RC, verbs.QPRTS, verbs.QPAttr{State: verbs.QPRTR}, verbs.RequiredMask(verbs.RC, verbs.QPInit, verbs.QPRTR), []string{"RTS", "RTR"}},
		{verbs.RC, verbs.QPRTS, verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState | verbs.QPAttrPort, []string{"PORT"}},
	} {
		t.Run(fmt.Sprintf("%v %v to %v", x.typ, x.from, x.attr.State), func(t *testing.T) {
			qp := lone(t, c, x.typ)
			a := verbs.QPAttr{Port: rdmatest.Port, PathMTU: verbs.MTU256, AH: p.Address, DestQPN: 1, MaxRDAtomic: 1, MaxDestRDAtomic: 1}
			for s := verbs.QPInit; s <= x.from; s++ {
				a.State = s
				rdmatest.Check(t, qp.Modify(a, verbs.RequiredMask(x.typ, s-1, s)))
			}
			err := qp.Modify(x.attr, x.mask)
			if !errors.Is(err, verbs.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			for _, s := range x.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q doesn't mention %s", err, s)
				}
			}
			if now, _, err := qp.Query(); err != nil || now.State != x.from {
				t.Errorf("the QP went from %v to %v, %v", x.from, now.State, err)
			}
		})
	}
}
