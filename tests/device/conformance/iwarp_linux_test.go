package conformance

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// These tests run on soft-iWARP, too. The other tests of this package need another transport
// than RC, immediate data, atomics, memory windows, RNR, QPs that they connect themselves, or
// another feature that siw lacks.
//
// siw never reports a solicited completion to a CQ that waits for these alone.
var _ = []struct{}{
	rdmatest.Test(TestSendsTakesBack, rdmatest.AlsoSIW),
	rdmatest.Test(TestCQ, rdmatest.AlsoSIW),
	rdmatest.Test(TestAll, rdmatest.AlsoSIW),
	rdmatest.Test(TestChannelDescriptor, rdmatest.AlsoSIW),
	rdmatest.Test(TestSharedChannel, rdmatest.AlsoSIW),
	rdmatest.Test(TestPD, rdmatest.AlsoSIW),
	rdmatest.Test(TestPDInUse, rdmatest.AlsoSIW),
	rdmatest.Test(TestMRFlags, rdmatest.AlsoSIW),
	rdmatest.Test(TestMRReadOnlyMemory, rdmatest.AlsoSIW),
	rdmatest.Test(TestForkSafety, rdmatest.AlsoSIW),
	rdmatest.Test(TestBufferPool, rdmatest.AlsoSIW),
	rdmatest.Test(TestExchanges, rdmatest.AlsoSIW),
	rdmatest.Test(TestUnsignaled, rdmatest.AlsoSIW),
	rdmatest.Test(TestSignalAll, rdmatest.AlsoSIW),
	rdmatest.Test(TestPartialPost, rdmatest.AlsoSIW),
	rdmatest.Test(TestSendQueueOrder, rdmatest.AlsoSIW),
	rdmatest.Test(TestOverrunWithoutEvents, rdmatest.AlsoSIW),
	rdmatest.Test(TestMRRereg, rdmatest.AlsoSIW),
	rdmatest.Test(TestXRC, rdmatest.AlsoSIW),
	rdmatest.Test(TestDC, rdmatest.AlsoSIW),
	rdmatest.Test(TestImplicitMR, rdmatest.AlsoSIW),
	rdmatest.Test(TestNullMR, rdmatest.AlsoSIW),
	rdmatest.Test(TestAdviseMR, rdmatest.AlsoSIW),
	rdmatest.Test(TestDM, rdmatest.AlsoSIW),
	rdmatest.Test(TestMaskedAtomics, rdmatest.AlsoSIW),
	rdmatest.Test(TestNop, rdmatest.AlsoSIW),
	rdmatest.Test(TestClock, rdmatest.AlsoSIW),
	rdmatest.Test(TestImport, rdmatest.AlsoSIW),
	rdmatest.Test(TestSRQRefused, rdmatest.AlsoSIW),
	rdmatest.Test(TestEventOfClosedObject, rdmatest.AlsoSIW),
	rdmatest.Test(TestCQOverrun, rdmatest.AlsoSIW),
}

var _ = rdmatest.Test(TestIWARPLacks, rdmatest.OnSIW)

// The library names each refused feature that iWARP or siw lacks. The connection continues
// after that.
func TestIWARPLacks(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	lacks := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("%s: %v, want ErrNotSupported", what, err)
		}
	}
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD, verbs.RawPacket} {
		_, err := p.PD.CreateQP(verbs.QPOptions{Type: typ, SendCQ: p.A.CQ, RecvCQ: p.A.CQ, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
		lacks(typ.String(), err)
	}
	_, err := p.PD.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.A.CQ, RecvCQ: p.A.CQ, Cap: verbs.QPCap{MaxRecvWR: 1}})
	lacks("a QP without sends", err)
	_, err = p.PD.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.A.CQ, RecvCQ: p.A.CQ, Cap: verbs.QPCap{MaxSendWR: 1, MaxInlineData: 81}})
	lacks("81 bytes of inline data", err)
	_, err = p.PD.CreateAH(verbs.AHAttr{Port: rdmatest.Port, IsGlobal: true})
	lacks("an address handle", err)
	_, err = p.PD.AllocMW(verbs.MWType2)
	lacks("a memory window", err)
	buf := make([]byte, 1<<14)
	_, err = p.PD.RegMR(buf, verbs.MROptions{IOVA: p.A.MR.Addr() + 1<<30})
	if err == nil || !errors.Is(err, verbs.ErrNotSupported) && !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("memory at another address: %v", err)
	}
	lacks("another size of a CQ", p.A.CQ.Resize(128))
	srq := rdmatest.Must(p.PD.CreateSRQ(verbs.SRQOptions{MaxWR: 4, MaxSGE: 1}))(t)
	lacks("another size of an SRQ", srq.Resize(8))
	gid := rdmatest.Must(p.Ctx.GIDTable())(t)[0]
	_, err = p.A.QP.Endpoint(gid)
	lacks("an endpoint", err)
	lacks("connecting", p.A.QP.Connect(verbs.Endpoint{}, verbs.ConnectOptions{}))
	for _, state := range []verbs.QPState{verbs.QPReset, verbs.QPRTR, verbs.QPSQE} {
		lacks(state.String(), p.A.QP.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState))
	}
	sge := []verbs.SGE{p.A.MR.SGE(0, 8)}
	for what, wr := range map[string]verbs.SendWR{
		"send with immediate":  {Opcode: verbs.OpSendImm, SGL: sge},
		"write with immediate": {Opcode: verbs.OpRDMAWriteImm, SGL: sge},
		"compare and swap":     {Opcode: verbs.OpCompareSwap, SGL: sge},
		"fetch and add":        {Opcode: verbs.OpFetchAdd, SGL: sge},
		"inline invalidation":  {Opcode: verbs.OpSendInv, Inline: []byte{1}},
		"a fenced read":        {Opcode: verbs.OpRDMARead, Flags: verbs.SendFence, SGL: sge},
	} {
		_, err := p.A.QP.PostSend(to(wr, p.B.MR, 0))
		lacks(what, err)
	}
	for what, wr := range map[string]verbs.SendWR{
		"local invalidation":     {Opcode: verbs.OpLocalInv},
		"nop":                    {Opcode: verbs.OpNop},
		"a read into two pieces": {Opcode: verbs.OpRDMARead, SGL: append(sge, sge...)},
	} {
		if _, err := p.A.QP.PostSend(wr); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	roundTrip(t, p, 1)
}

var _ = rdmatest.Test(TestIWARPUnconnected, rdmatest.OnSIW)

// A QP that is not connected takes receives, but no sends, and can't be made ready by hand.
func TestIWARPUnconnected(t *testing.T) {
	s := rdmatest.Default()
	s.A.Idle, s.B.Idle = true, true
	p := rdmatest.NewPair(t, s)
	rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPInit}, verbs.QPAttrState))
	err := p.A.QP.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState)
	var e *verbs.OpError
	if !errors.As(err, &e) || e.Hint() == "" {
		t.Errorf("RTS without a connection: %v", err)
	}
	if a, _, err := p.A.QP.Query(); err != nil || a.State != verbs.QPInit {
		t.Errorf("the state is %v, %v", a.State, err)
	}
	p.A.Recv(t, 7, 0, 64)
	if _, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a send: %v", err)
	}
	rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.WRID != 7 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("the receive completes with %+v", wc)
	}
}

var _ = rdmatest.Test(TestIWARPSRQ, rdmatest.OnSIW)

// Messages arrive in the receives of an SRQ, which reports when few are left. siw still
// reports the limit after that.
func TestIWARPSRQ(t *testing.T) {
	p := rdmatest.NewPair(t, srqSpec())
	events := eventsOf(t, p.Ctx)
	for i := range 10 {
		p.B.Recv(t, uint64(i), 64*i, 64)
	}
	rdmatest.Check(t, p.B.SRQ.SetLimit(7))
	for i := range 4 {
		message := rdmatest.Pattern(40, i)
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: message})
		rdmatest.PollOK(t, p.A.CQ, 1)
		if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.WRID != uint64(i) || wc.ByteLen != 40 || wc.QPNum != p.B.QP.Num() {
			t.Errorf("message %d: %+v", i, wc)
		}
		wantBytes(t, p.B.MR.Bytes()[64*i:64*i+40], message)
	}
	if e := nextEvent(t, events); e.Type != verbs.EventSRQLimitReached || e.SRQ != p.B.SRQ {
		t.Errorf("%+v", e)
	}
}
