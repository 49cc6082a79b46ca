package conformance

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestSends posts batches that exceed a builder's own buffer, with requests of
// several kinds.
func TestSends(t *testing.T) {
	s := rdmatest.Default()
	s.Cap.MaxSendWR = 64
	p := rdmatest.NewPair(t, s)
	const n, size = 40, 100
	for round := range 5 {
		rdmatest.Fill(p.A.MR.Bytes(), round)
		clear(p.B.MR.Bytes())
		p.B.Recv(t, 7, 0, 0)
		m, err := p.A.QP.Sends(func(b *verbs.SendBuilder) error {
			for i := range n {
				to := p.B.MR.Remote().At(uint64(i * size))
				switch i % 3 {
				case 0:
					b.Add(verbs.SendWR{
						WRID: uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Remote: to,
						SGL: []verbs.SGE{p.A.MR.SGE(i*size, 40), p.A.MR.SGE(i*size+40, size-40)},
					})
				default:
					b.RDMAWrite(uint64(i), verbs.SendSignaled, to, p.A.MR.SGE(i*size, size))
				}
			}
			b.Add(verbs.SendWR{
				WRID: n, Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Remote: p.B.MR.Remote().At(n * size),
				Imm: 0x1234, Inline: []byte("the last"),
			})
			return nil
		})
		if m != n+1 || err != nil {
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

// TestSendsTakesBack: a batch is not sent at all if one of its requests is refused,
// if it doesn't fit, or if building it fails.
func TestSendsTakesBack(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	own := errors.New("aborted")
	writes := func(n int, then func(*verbs.SendBuilder) error) (int, error) {
		return p.A.QP.Sends(func(b *verbs.SendBuilder) error {
			for i := range n {
				b.RDMAWrite(0, verbs.SendSignaled, p.B.MR.Remote().At(uint64(i)), p.A.MR.SGE(0, 1))
			}
			return then(b)
		})
	}
	rdmatest.Fill(p.A.MR.Bytes(), 1)
	for range 10 {
		n, err := writes(3, func(b *verbs.SendBuilder) error {
			b.Add(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 1000)})
			return nil
		})
		if n != 0 || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d, %v", n, err)
		}
		// rxe's queue has room for more requests than it reports.
		if n, err := writes(4*p.A.QP.Cap().MaxSendWR, func(*verbs.SendBuilder) error { return nil }); n != 0 || !isFull(err) {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := writes(3, func(*verbs.SendBuilder) error { return own }); n != 0 || err != own {
			t.Errorf("%d, %v", n, err)
		}
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

// TestSendsUD sends datagrams.
func TestSendsUD(t *testing.T) {
	s := rdmatest.Default()
	s.Type = verbs.UD
	p := rdmatest.NewPair(t, s)
	rdmatest.Fill(p.A.MR.Bytes(), 3)
	for i := range 4 {
		p.B.Recv(t, uint64(i), 200*i, 200)
	}
	n, err := p.A.QP.Sends(func(b *verbs.SendBuilder) error {
		for i := range 4 {
			b.Add(verbs.SendWR{
				WRID: uint64(i), Opcode: verbs.OpSendImm, Flags: verbs.SendSignaled, Imm: uint32(i), SGL: []verbs.SGE{p.A.MR.SGE(50*i, 50)},
				AH: p.A.AH, RemoteQPN: p.B.QP.Num(), RemoteQKey: rdmatest.QKey,
			})
		}
		return nil
	})
	if n != 4 || err != nil {
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

// TestSendsBusy: while a batch is being built, its QP is in use.
func TestSendsBusy(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	n, err := p.A.QP.Sends(func(b *verbs.SendBuilder) error {
		b.RDMAWrite(5, verbs.SendSignaled, p.B.MR.Remote(), p.A.MR.SGE(0, 8))
		for name, f := range map[string]func() error{
			"close": p.A.QP.Close,
			"reset": func() error { return p.A.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState) },
		} {
			if err := f(); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("%s: %v, want ErrBusy", name, err)
			}
		}
		return nil
	})
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.WRID != 5 {
		t.Errorf("%+v", wc)
	}
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Close(t, p.A.QP)
}
