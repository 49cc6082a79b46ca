package conformance

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestSendBuilder posts batches that exceed a builder's own buffer, with requests of
// several kinds.
func TestSendBuilder(t *testing.T) {
	s := rdmatest.Default()
	s.Cap.MaxSendWR = 64
	p := rdmatest.NewPair(t, s)
	const n, size = 40, 100
	for round := range 5 {
		rdmatest.Fill(p.A.MR.Bytes(), round)
		clear(p.B.MR.Bytes())
		p.B.Recv(t, 7, 0, 0)
		b := p.A.QP.StartSends()
		b.Flags = verbs.SendSignaled
		for i := range n {
			b.WRID = uint64(i)
			b.RDMAWrite(p.B.MR.RKey(), p.B.MR.Addr()+uint64(i*size))
			switch i % 3 {
			case 0:
				b.SetSGEList([]verbs.SGE{p.A.MR.SGE(i*size, 40), p.A.MR.SGE(i*size+40, size-40)})
			default:
				b.SetSGE(p.A.MR.SGE(i*size, size))
			}
		}
		b.WRID = n
		b.RDMAWriteImm(p.B.MR.RKey(), p.B.MR.Addr()+n*size, 0x1234)
		b.SetInlineData([]byte("the last"))
		if m, err := b.Complete(); m != n+1 || err != nil {
			t.Fatal(m, err)
		}
		for i, wc := range rdmatest.PollOK(t, p.A.CQ, n+1) {
			if wc.WRID != uint64(i) || wc.Opcode != verbs.WCRDMAWrite {
				t.Errorf("completion %d: %+v", i, wc)
			}
		}
		if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.WRID != 7 || wc.ByteLen != 8 {
			t.Errorf("%+v", wc)
		}
		if got := p.B.MR.Bytes(); !bytes.Equal(got[:n*size], p.A.MR.Bytes()[:n*size]) || string(got[n*size:][:8]) != "the last" {
			t.Error("other bytes arrived")
		}
	}
}

// TestSendBuilderTakesBack: a batch is not sent at all if one of its requests is refused,
// if it doesn't fit, or if it is aborted.
func TestSendBuilderTakesBack(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	writes := func(n int) *verbs.SendBuilder {
		b := p.A.QP.StartSends()
		b.Flags = verbs.SendSignaled
		for i := range n {
			b.RDMAWrite(p.B.MR.RKey(), p.B.MR.Addr()+uint64(i))
			b.SetSGE(p.A.MR.SGE(0, 1))
		}
		return &b
	}
	rdmatest.Fill(p.A.MR.Bytes(), 1)
	for range 10 {
		b := writes(3)
		b.Send()
		b.SetInlineData(make([]byte, 1000))
		if n, err := b.Complete(); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d, %v", n, err)
		}
		// rxe's queue has room for more requests than it reports.
		if n, err := writes(4 * p.A.QP.Cap().MaxSendWR).Complete(); n != 0 || !isFull(err) {
			t.Errorf("%d, %v", n, err)
		}
		writes(3).Abort()
	}
	rdmatest.Idle(t, p.A.CQ)
	if got := p.B.MR.Bytes()[:64]; !bytes.Equal(got, make([]byte, 64)) {
		t.Errorf("%x arrived", got)
	}
	p.B.Recv(t, 1, 0, 64)
	p.A.Send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(5, 64)}})
	if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.WRID != 2 {
		t.Errorf("%+v", wc)
	}
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantArrived(t, p.B.MR.Bytes(), 0, p.A.MR.Bytes()[5:69])
}

// TestSendBuilderUD sends datagrams.
func TestSendBuilderUD(t *testing.T) {
	s := rdmatest.Default()
	s.Type = verbs.UD
	p := rdmatest.NewPair(t, s)
	rdmatest.Fill(p.A.MR.Bytes(), 3)
	for i := range 4 {
		p.B.Recv(t, uint64(i), 200*i, 200)
	}
	b := p.A.QP.StartSends()
	for i := range 4 {
		b.WRID, b.Flags = uint64(i), verbs.SendSignaled
		b.SendImm(uint32(i))
		b.SetUDAddr(p.A.AH, p.B.QP.Num(), rdmatest.QKey)
		b.SetSGE(p.A.MR.SGE(50*i, 50))
	}
	if n, err := b.Complete(); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	rdmatest.PollOK(t, p.A.CQ, 4)
	for i, wc := range rdmatest.PollOK(t, p.B.CQ, 4) {
		imm, ok := wc.Imm()
		if data := p.B.MR.Bytes()[200*i+40:][:50]; imm != uint32(i) || !ok || !bytes.Equal(data, p.A.MR.Bytes()[50*i:][:50]) {
			t.Errorf("datagram %d: %#x, %x, %+v", i, imm, data, wc)
		}
	}
}

// TestSendBuilderEnds: a deferred Abort doesn't affect another goroutine's batch, and
// closing a QP with an unfinished batch reports that it is in use.
func TestSendBuilderEnds(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	first := p.A.QP.StartSends()
	if n, err := first.Complete(); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	second := p.A.QP.StartSends()
	second.WRID, second.Flags = 5, verbs.SendSignaled
	second.RDMAWrite(p.B.MR.RKey(), p.B.MR.Addr())
	second.SetSGE(p.A.MR.SGE(0, 8))
	first.Abort()
	first.RDMAWrite(0, 0)
	for name, f := range map[string]func() error{
		"close": p.A.QP.Close,
		"reset": func() error { return p.A.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState) },
	} {
		if err := f(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", name, err)
		}
	}
	if n, err := second.Complete(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.WRID != 5 {
		t.Errorf("%+v", wc)
	}
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Close(t, p.A.QP)
}
