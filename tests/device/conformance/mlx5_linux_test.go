package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// onMLX5 reports whether the device is mlx5. On rxe, it checks that try, which uses the
// tested feature, is refused.
func onMLX5(t *testing.T, try func(c *verbs.Device, pd *verbs.PD) error) bool {
	t.Helper()
	if rdmatest.KindOf() == rdmatest.MLX5 {
		return true
	}
	c := rdmatest.Open(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	if err := try(c, pd); err == nil {
		t.Error("rxe didn't refuse it")
	}
	return false
}

// TestXRC sends to two SRQs through one pair of QPs.
func TestXRC(t *testing.T) {
	if !onMLX5(t, func(c *verbs.Device, _ *verbs.PD) error { _, err := c.OpenXRCD(); return err }) {
		return
	}
	c := rdmatest.Open(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	domain := rdmatest.Must(c.OpenXRCD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	mr := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: rdmatest.All | verbs.AccessRelaxedOrdering}))(t)
	var srqs [2]*verbs.SRQ
	var recvCQs [2]*verbs.CQ
	for i := range srqs {
		recvCQs[i] = rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
		srqs[i] = rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 4, MaxSGE: 1, XRCD: domain, CQ: recvCQs[i]}))(t)
		if srqs[i].Num() == 0 {
			t.Error("an XRC SRQ without a number")
		}
		rdmatest.Must(srqs[i].PostRecv(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{mr.SGE(1024+64*i, 64)}}))(t)
	}
	send := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.XRCSend, SendCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInlineData: 32}}))(t)
	recv := rdmatest.Must(domain.CreateQP(verbs.QPOptions{}))(t)
	gid := rdmatest.GID(t, c)
	receiver, sender := rdmatest.Must(recv.Endpoint(gid))(t), rdmatest.Must(send.Endpoint(gid))(t)
	all := verbs.ConnectOptions{Access: rdmatest.All &^ verbs.AccessLocalWrite}
	rdmatest.Check(t, recv.Connect(sender, all))
	rdmatest.Check(t, send.Connect(receiver, all))
	if _, err := recv.PostSend(verbs.SendWR{Opcode: verbs.OpSend}); err == nil {
		t.Error("an XRCRecv QP sent")
	}
	if _, err := recv.PostRecv(verbs.RecvWR{}); err == nil {
		t.Error("an XRCRecv QP accepted a receive")
	}
	for i, srq := range srqs {
		text := []byte("to SRQ " + string(rune('0'+i)))
		copy(mr.Bytes(), text)
		n, err := send.PostSend(verbs.SendWR{
			WRID: 7, Opcode: verbs.OpSendImm, Imm: 0x1234, Flags: verbs.SendSignaled, RemoteSRQN: srq.Num(),
			SGL: []verbs.SGE{mr.SGE(0, len(text))},
		})
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		wc := rdmatest.PollOK(t, recvCQs[i], 1)[0]
		imm, ok := wc.Imm()
		if wc.WRID != uint64(i) || imm != 0x1234 || !ok || int(wc.ByteLen) != len(text) {
			t.Errorf("SRQ %d received %+v", i, wc)
		}
		if got := mr.Bytes()[1024+64*i:][:len(text)]; !bytes.Equal(got, text) {
			t.Errorf("SRQ %d received %q, want %q", i, got, text)
		}
		if wc := rdmatest.PollOK(t, cq, 1)[0]; wc.WRID != 7 || wc.Opcode != verbs.WCSend {
			t.Errorf("sent %+v", wc)
		}
	}
	// OpenQP returns the same QP, and its caller may close it.
	opened := rdmatest.Must(domain.OpenQP(recv.Num()))(t)
	if opened.Num() != recv.Num() || opened.Type() != verbs.XRCRecv || opened.State() != recv.State() {
		t.Errorf("opened %v %#x in %v, want %v %#x in %v", opened.Type(), opened.Num(), opened.State(), recv.Type(), recv.Num(), recv.State())
	}
	if _, err := opened.PostSend(verbs.SendWR{Opcode: verbs.OpSend}); err == nil {
		t.Error("an opened XRCRecv QP sent")
	}
	rdmatest.Close(t, opened)
	if qp, err := domain.OpenQP(send.Num()); err == nil {
		t.Error("opened an XRCSend QP")
		rdmatest.Close(t, qp)
	}
	// Repeat with inline data, a write and a read.
	copy(mr.Bytes()[2048:], "to be read")
	n, err := send.PostSend(
		verbs.SendWR{Opcode: verbs.OpRDMAWrite, Inline: []byte("written"), Remote: mr.Remote().At(3000), RemoteSRQN: srqs[0].Num()},
		verbs.SendWR{WRID: 9, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(2200, 10)}, Remote: mr.Remote().At(2048), RemoteSRQN: srqs[1].Num()})
	if n != 2 || err != nil {
		t.Fatal(n, err)
	}
	rdmatest.PollOK(t, cq, 1)
	if got := string(mr.Bytes()[3000:3007]) + ", " + string(mr.Bytes()[2200:2210]); got != "written, to be read" {
		t.Errorf("memory has %q", got)
	}
	swaps(t, c, send, cq, mr, verbs.SendWR{RemoteSRQN: srqs[0].Num()})
	if err := domain.Close(); err == nil {
		t.Error("closed a domain that is in use")
	}
}

// swaps adds to a word of the memory and swaps it, by requests like wr.
func swaps(t *testing.T, c *verbs.Device, qp *verbs.QP, cq *verbs.CQ, mr *verbs.MR, wr verbs.SendWR) {
	t.Helper()
	if rdmatest.Must(c.QueryDevice())(t).AtomicCap == verbs.AtomicNone {
		return
	}
	const target, before = 3072, 3200
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(mr.Bytes()[at:]) }
	binary.NativeEndian.PutUint64(mr.Bytes()[target:], 5)
	wr.Flags, wr.Remote, wr.SGL = verbs.SendSignaled, mr.Remote().At(target), []verbs.SGE{mr.SGE(before, 8)}
	wr.Opcode, wr.Add = verbs.OpFetchAdd, 3
	rdmatest.Must(qp.PostSend(wr))(t)
	if wc := rdmatest.PollOK(t, cq, 1)[0]; wc.Opcode != verbs.WCFetchAdd || word(before) != 5 || word(target) != 8 {
		t.Errorf("%v: there was %d, and is %d", wc.Opcode, word(before), word(target))
	}
	wr.Opcode, wr.Compare, wr.Swap = verbs.OpCompareSwap, 8, 100
	rdmatest.Must(qp.PostSend(wr))(t)
	if wc := rdmatest.PollOK(t, cq, 1)[0]; wc.Opcode != verbs.WCCompareSwap || word(before) != 8 || word(target) != 100 {
		t.Errorf("%v: there was %d, and is %d", wc.Opcode, word(before), word(target))
	}
}

// TestDC sends from one initiator to two targets.
func TestDC(t *testing.T) {
	if !onMLX5(t, func(c *verbs.Device, pd *verbs.PD) error {
		cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
		_, err := pd.CreateQP(verbs.QPOptions{Type: verbs.DCI, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
		return err
	}) {
		return
	}
	const key = 0x1122334455667788
	c := rdmatest.Open(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	recvCQ := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	mr := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: rdmatest.All}))(t)
	srq := rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))(t)
	dci := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.DCI, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1, MaxInlineData: 32}}))(t)
	rdmatest.Check(t, dci.Activate(verbs.ActivateOptions{Port: rdmatest.Port}))
	ah := rdmatest.Must(pd.CreateAH(rdmatest.Address(t, c)))(t)
	for i := range 2 {
		dct := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: recvCQ, RecvCQ: recvCQ, SRQ: srq, DCKey: key}))(t)
		rdmatest.Check(t, dct.Activate(verbs.ActivateOptions{Port: rdmatest.Port, GID: rdmatest.GID(t, c), Access: rdmatest.All}))
		if dct.Num() == 0 {
			t.Fatal("a DCT in RTR without a number")
		}
		rdmatest.Must(srq.PostRecv(verbs.RecvWR{WRID: 5, SGL: []verbs.SGE{mr.SGE(1024, 64)}}))(t)
		copy(mr.Bytes(), "message")
		n, err := dci.PostSend(
			verbs.SendWR{Opcode: verbs.OpRDMAWrite, AH: ah, RemoteQPN: dct.Num(), DCKey: key, Inline: []byte{byte(i + 1), 2, 3}, Remote: mr.Remote().At(2000)},
			verbs.SendWR{WRID: 6, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: dct.Num(), DCKey: key, SGL: []verbs.SGE{mr.SGE(0, 7)}})
		if n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if wc := rdmatest.PollOK(t, recvCQ, 1)[0]; wc.WRID != 5 || wc.ByteLen != 7 || wc.Opcode != verbs.WCRecv {
			t.Errorf("received %+v", wc)
		}
		if wc := rdmatest.PollOK(t, cq, 1)[0]; wc.WRID != 6 {
			t.Errorf("sent %+v", wc)
		}
		if got := string(mr.Bytes()[1024:1031]); got != "message" || mr.Bytes()[2000] != byte(i+1) {
			t.Errorf("memory has %q and %v", got, mr.Bytes()[2000:2003])
		}
		swaps(t, c, dci, cq, mr, verbs.SendWR{AH: ah, RemoteQPN: dct.Num(), DCKey: key})
	}
}

func TestMaskedAtomics(t *testing.T) {
	if !onMLX5(t, func(c *verbs.Device, _ *verbs.PD) error {
		p := rdmatest.PairOn(t, c, rdmatest.Default())
		_, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpMaskedFetchAdd, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}})
		return err
	}) {
		return
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !hasAtomics(t, p, verbs.OpMaskedCompareSwap, verbs.OpMaskedFetchAdd) {
		return
	}
	for i, x := range scenario.Atomics(1) {
		if x.Masked {
			atomic(t, p.A, p.B, &x, uint64(i))
		}
	}
}

// TestNop: a NOP does nothing and completes as a send.
func TestNop(t *testing.T) {
	if !onMLX5(t, func(c *verbs.Device, _ *verbs.PD) error {
		p := rdmatest.PairOn(t, c, rdmatest.Default())
		_, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpNop})
		return err
	}) {
		return
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	// The opcodes of memory windows precede NOP, which must not be taken for one.
	mw := rdmatest.Must(p.PD.AllocMW(verbs.MWType2))(t)
	p.A.Send(t, verbs.SendWR{
		Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: verbs.NextRKey(mw.RKey()),
		Bind: verbs.MWBindInfo{MR: p.A.MR, Addr: p.A.MR.Addr(), Length: 64, Access: verbs.AccessRemoteRead},
	})
	rdmatest.PollOK(t, p.A.CQ, 1)
	for id := range uint64(200) {
		p.A.Send(t, verbs.SendWR{WRID: id, Opcode: verbs.OpNop, Flags: verbs.SendSignaled})
		if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.WRID != id || wc.Opcode != verbs.WCSend {
			t.Fatalf("completed %+v", wc)
		}
	}
	rdmatest.Close(t, mw)
}

// TestScatterToCQE checks that short messages that arrive in their CQEs reach the
// receive buffer: up to 32 bytes, or 64 bytes in CQEs of 128 bytes.
func TestScatterToCQE(t *testing.T) {
	for _, size := range cqeSizes() {
		s := rdmatest.Default()
		s.ScatterToCQE, s.CQESize = true, size
		p := rdmatest.NewPair(t, s)
		scatterToCQE(t, p)
		scatterElsewhere(t, p)
	}
}

// scatterElsewhere receives in memory at another address than the process has it, and in
// memory that isn't registered any more when the completion is polled.
func scatterElsewhere(t *testing.T, p *rdmatest.Pair) {
	const n = 20
	rdmatest.Fill(p.A.MR.Bytes()[:n], n)
	send := func(to verbs.SGE) {
		t.Helper()
		p.B.PostRecv(t, verbs.RecvWR{SGL: []verbs.SGE{to}})
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}})
		rdmatest.PollOK(t, p.A.CQ, 1)
	}
	page := os.Getpagesize()
	buf := make([]byte, 2*page)
	for len(buf) > 0 && uintptr(unsafe.Pointer(&buf[0]))%uintptr(page) != 0 {
		buf = buf[1:]
	}
	for name, o := range map[string]verbs.MROptions{
		"zero-based": {Access: verbs.AccessLocalWrite | verbs.AccessZeroBased},
		"IOVA":       {Access: verbs.AccessLocalWrite, IOVA: 7 << 40},
	} {
		mr, err := p.PD.RegMR(buf[:page], o)
		if err != nil {
			if rdmatest.KindOf() == rdmatest.MLX5 {
				t.Errorf("%s: %v", name, err)
			}
			continue // not every rxe knows them
		}
		clear(mr.Bytes())
		send(mr.SGE(100, n))
		rdmatest.PollOK(t, p.B.CQ, 1)
		want := make([]byte, page)
		rdmatest.Fill(want[100:100+n], n)
		if !bytes.Equal(mr.Bytes(), want) {
			t.Errorf("%s: received %x", name, mr.Bytes()[90:130])
		}
		rdmatest.Close(t, mr)
	}
	if rdmatest.KindOf() != rdmatest.MLX5 {
		return
	}
	mr := rdmatest.Must(p.PD.RegMR(buf[:page], verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	send(mr.SGE(0, n))
	rdmatest.Close(t, mr)
	clear(buf)
	if wc := rdmatest.Poll(t, p.B.CQ, 1)[0]; wc.Status != verbs.WCLocProtErr || !bytes.Equal(buf, make([]byte, len(buf))) {
		t.Errorf("to memory that isn't registered any more: %+v, and there is %x", wc, buf[:n])
	}
}

// cqeSizes returns the CQE sizes that the device supports.
func cqeSizes() []int {
	if rdmatest.KindOf() == rdmatest.MLX5 {
		return []int{64, 128}
	}
	return []int{0} // the default
}

func scatterToCQE(t *testing.T, p *rdmatest.Pair) {
	for _, n := range []int{1, 16, 31, 32, 33, 64, 65, 500} {
		rdmatest.Fill(p.A.MR.Bytes()[:n], n)
		clear(p.B.MR.Bytes()[:1024])
		half := n / 2
		p.B.PostRecv(t, verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{p.B.MR.SGE(0, half), p.B.MR.SGE(512, n-half)}})
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; int(wc.ByteLen) != n {
			t.Errorf("sent %d bytes, received %d", n, wc.ByteLen)
		}
		got := append(bytes.Clone(p.B.MR.Bytes()[:half]), p.B.MR.Bytes()[512:512+n-half]...)
		if !bytes.Equal(got, p.A.MR.Bytes()[:n]) || p.B.MR.Bytes()[512+n-half] != 0 {
			t.Errorf("received %d bytes\n%x, want\n%x", n, got, p.A.MR.Bytes()[:n])
		}
		clear(p.A.MR.Bytes()[:n])
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}, Remote: p.B.MR.Remote()})
		rdmatest.PollOK(t, p.A.CQ, 1)
		if !bytes.Equal(p.A.MR.Bytes()[:n], p.B.MR.Bytes()[:n]) {
			t.Errorf("read %d bytes\n%x, want\n%x", n, p.A.MR.Bytes()[:n], p.B.MR.Bytes()[:n])
		}
	}
}

// TestSignedRequests has mlx5 check the signature of each WQE that it reads, in both
// queues, across their ends.
func TestSignedRequests(t *testing.T) {
	s := rdmatest.Default()
	s.SignWQEs = true
	s.Cap.MaxSendWR, s.Cap.MaxRecvWR = 4, 4
	p := rdmatest.NewPair(t, s)
	for i := range 50 {
		n := 2 + 7*i
		data := rdmatest.Pattern(n, i)
		copy(p.A.MR.Bytes(), data)
		wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
		if n <= p.A.QP.Cap().MaxInlineData && i%2 == 0 {
			wr.Inline = data
		} else {
			wr.SGL = []verbs.SGE{p.A.MR.SGE(0, n/2), p.A.MR.SGE(n/2, n-n/2)}
		}
		p.B.PostRecv(t, verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.B.MR.SGE(0, 100), p.B.MR.SGE(100, 1000)}[i%2:]})
		p.A.Send(t, wr)
		rdmatest.PollOK(t, p.A.CQ, 1)
		rdmatest.PollOK(t, p.B.CQ, 1)
		wantBytes(t, p.B.MR.Bytes()[100*(i%2):][:n], data)
	}
}

// TestCQForms polls bursts of completions from CQs of every format, across the rings'
// ends, and resizes a CQ with such completions in it.
func TestCQForms(t *testing.T) {
	type form struct {
		size        int
		compression verbs.CQECompression
	}
	var forms []form
	c := rdmatest.Open(t)
	attr := rdmatest.Must(c.QueryDevice())(t)
	compression := verbs.CQECompression(0)
	if rdmatest.KindOf() == rdmatest.MLX5 {
		forms = append(forms, form{64, 0}, form{128, 0})
		compression = verbs.CompressHash | verbs.CompressChecksum // rig/connectx supports only these
	} else if _, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 1, CQESize: 64}); err == nil {
		t.Error("rxe accepted a CQE size")
	}
	if got := attr.CQECompression; got.Formats != compression || (got.MaxNum > 0) != (compression != 0) {
		t.Errorf("compression is %+v, want formats %d", got, compression)
	}
	for _, f := range []verbs.CQECompression{verbs.CompressHash, verbs.CompressChecksum, verbs.CompressStride} {
		if f&compression != 0 {
			forms = append(forms, form{64, f})
		} else if _, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 1, Compression: f}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("compression %d: got %v, want ErrInvalid", f, err)
		}
	}
	for _, f := range forms {
		t.Run(fmt.Sprintf("%d bytes, compression %d", f.size, f.compression), func(t *testing.T) {
			s := rdmatest.Default()
			s.CQESize, s.Compression, s.CQE = f.size, f.compression, 30
			s.Cap.MaxSendWR, s.Cap.MaxRecvWR = 32, 32
			p := rdmatest.PairOn(t, c, s)
			for round := range 12 {
				n := 1 + 5*round%20
				recvs, sends := make([]verbs.RecvWR, n), make([]verbs.SendWR, n)
				for i := range n {
					recvs[i] = verbs.RecvWR{WRID: uint64(100*round + i), SGL: []verbs.SGE{p.B.MR.SGE(256*i, 256)}}
					sends[i] = verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{p.A.MR.SGE(0, 1+10*i)}}
				}
				sends[n-1].Flags = verbs.SendSignaled
				p.B.PostRecv(t, recvs...)
				p.A.Send(t, sends...)
				rdmatest.PollOK(t, p.A.CQ, 1)
				if round == 7 {
					rdmatest.Check(t, p.B.CQ.Resize(60))
				}
				for i, wc := range rdmatest.PollOK(t, p.B.CQ, n) {
					if wc.WRID != recvs[i].WRID || int(wc.ByteLen) != 1+10*i || wc.Opcode != verbs.WCRecv || wc.QPNum != p.B.QP.Num() {
						t.Fatalf("round %d: completion %d of %d is %+v", round, i, n, wc)
					}
				}
				rdmatest.Idle(t, p.B.CQ)
			}
		})
	}
}

var _ = rdmatest.Test(TestWallClock, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Profiles)

// TestWallClock: a CQ with only WCFieldWallClock reports the time of day, whichever clock the
// adapter uses.
func TestWallClock(t *testing.T) {
	s := rdmatest.Default()
	s.Fields = verbs.WCFieldWallClock
	p := rdmatest.NewPair(t, s)
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}
	p.A.Send(t, to(wr, p.B.MR, 0))
	wc := make([]verbs.WCEx, 1)
	for deadline := time.Now().Add(rdmatest.Patience); ; {
		n, err := p.A.CQ.PollEx(wc)
		if err != nil || time.Now().After(deadline) {
			t.Fatal("no completion:", err)
		}
		if n > 0 {
			break
		}
	}
	if err := wc[0].Err(); err != nil {
		t.Fatal(err)
	}
	if off := time.Since(wc[0].WallClock).Abs(); off > rdmatest.Patience {
		t.Errorf("the completion was at %v, %v from now", wc[0].WallClock, off)
	}
}

// TestClock reads the device's clock before and after completions that have timestamps.
func TestClock(t *testing.T) {
	s := rdmatest.Default()
	if rdmatest.KindOf() == rdmatest.MLX5 {
		s.Fields = verbs.WCFieldTimestamp | verbs.WCFieldWallClock
	}
	p := rdmatest.NewPair(t, s)
	wc := make([]verbs.WCEx, 8)
	if s.Fields == 0 {
		if _, err := p.Ctx.RawClock(); !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("rxe returned a clock: %v", err)
		}
		for _, fields := range []verbs.WCFields{verbs.WCFieldTimestamp, verbs.WCFieldWallClock, verbs.WCFieldFlowTag, verbs.WCFieldVLAN} {
			if _, err := p.Ctx.CreateCQ(verbs.CQOptions{MaxCQE: 8, Fields: fields}); !errors.Is(err, verbs.ErrNotSupported) {
				t.Errorf("rxe's completions with %v: %v", fields, err)
			}
		}
		return
	}
	attr := rdmatest.Must(p.Ctx.QueryDevice())(t)
	if attr.HCACoreClock == 0 || attr.CompletionTimestampMask == 0 {
		t.Errorf("the clock has %d kHz, mask %#x", attr.HCACoreClock, attr.CompletionTimestampMask)
	}
	last := rdmatest.RawClock(t, p.Ctx)
	for i := range 20 {
		wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}
		p.A.Send(t, to(wr, p.B.MR, 0), to(wr, p.B.MR, 8))
		for n, deadline := 0, time.Now().Add(rdmatest.Patience); n < 2; {
			m, err := p.A.CQ.PollEx(wc)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("%d of 2 completions: %v", n, err)
			}
			for j := range m {
				if wc[j].WRID != uint64(i) || wc[j].Err() != nil || wc[j].Timestamp < last {
					t.Fatalf("%+v, the timestamp before is %d", wc[j], last)
				}
				last = wc[j].Timestamp
				// The kernel's translation is not exact.
				if off := time.Since(wc[j].WallClock).Abs(); off > rdmatest.Patience {
					t.Errorf("the completion was at %v, %v from now", wc[j].WallClock, off)
				}
			}
			n += m
		}
		now := rdmatest.RawClock(t, p.Ctx)
		if now != 0 && now < last {
			t.Fatalf("a completion has timestamp %d, but the clock is at %d", last, now)
		}
		last = max(now, last)
	}
}

// TestManyQPs has more QPs post at once than there are doorbell registers, both
// dedicated ones and in total.
func TestManyQPs(t *testing.T) {
	const writes = 50
	c := rdmatest.Open(t)
	s := rdmatest.Default()
	s.Len = 4096
	errs := make(chan error)
	pairs := make([]*rdmatest.Pair, 24)
	for i := range pairs {
		pairs[i] = rdmatest.PairOn(t, c, s)
	}
	for i, p := range pairs {
		go func() {
			var wc [1]verbs.WC
			deadline := time.Now().Add(rdmatest.Patience)
			for n := range writes {
				data := binary.NativeEndian.AppendUint64(nil, uint64(i)<<32|uint64(n))
				wr := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Inline: data}, p.B.MR, n*8)
				if _, err := p.A.QP.PostSend(wr); err != nil {
					errs <- err
					return
				}
				for {
					m, err := p.A.CQ.Poll(wc[:])
					if err == nil && m == 1 {
						err = wc[0].Err()
					}
					if err == nil && time.Now().After(deadline) {
						err = fmt.Errorf("QP %d: no completion of write %d", i, n)
					}
					if err != nil {
						errs <- err
						return
					}
					if m == 1 {
						break
					}
					runtime.Gosched()
				}
			}
			errs <- nil
		}()
	}
	for range pairs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i, p := range pairs {
		for n := range writes {
			if got := binary.NativeEndian.Uint64(p.B.MR.Bytes()[8*n:]); got != uint64(i)<<32|uint64(n) {
				t.Errorf("after write %d of QP %d, memory has %#x", n, i, got)
				break
			}
		}
	}
}

// TestQPECE: of the rig's devices, ConnectX-6 Dx and ConnectX-7 have enhanced connection
// establishment. On the others, the driver reports only the vendor.
func TestQPECE(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	const (
		mellanox  = 0x15b3
		supported = 0x1000000f // options that rig/connectx supports
	)
	has := false
	if rdmatest.KindOf() == rdmatest.MLX5 {
		switch card := string(rdmatest.Must(os.ReadFile("/sys/class/infiniband/" + rdmatest.Device + "/hca_type"))(t)); card {
		case "MT4125\n", "MT4129\n":
			has = true
		}
	}
	got, err := p.A.QP.QueryECE()
	switch {
	case rdmatest.KindOf() != rdmatest.MLX5:
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("rxe returned ECE: %+v, %v", got, err)
		}
	case err != nil || got.VendorID != mellanox || (got.Options != 0) != has || got.Options&^supported != 0:
		t.Errorf("%+v, %v; ECE: %t", got, err, has)
	default:
		if err := p.A.QP.SetECE(verbs.ECE{VendorID: 1, Options: 1}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("ECE of another vendor: %v", err)
		}
	}
	if has {
		// The device returns those of the peer's options that it supports.
		reset := verbs.QPAttr{State: verbs.QPReset}
		rdmatest.Check(t, errors.Join(p.A.QP.Modify(reset, verbs.QPAttrState), p.A.QP.SetECE(verbs.ECE{VendorID: mellanox, Options: 0x70000035})))
		p.ToRTS(t, p.A, p.B.QP.Num())
		if got, err := p.A.QP.QueryECE(); err != nil || got.Options != 0x70000035&supported {
			t.Errorf("the device answers %+v, %v", got, err)
		}
	} else if err := p.A.QP.SetECE(verbs.ECE{VendorID: mellanox, Options: 1}); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
	rdmatest.Close(t, p.A.QP)
	if _, err := p.A.QP.QueryECE(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}
