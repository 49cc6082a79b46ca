package conformance

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func isFull(err error) bool { return errors.Is(err, verbs.ErrQueueFull) }

// to adds an address in the peer's memory to a request.
func to(wr verbs.SendWR, mr *verbs.MR, off int) verbs.SendWR {
	wr.Flags |= verbs.SendSignaled
	wr.Remote = mr.Remote().At(uint64(off))
	return wr
}

func TestRDMAWrite(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	for i, n := range sizes {
		data := fresh(p, n, i)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}}, p.B.MR, 33))
		if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.Opcode != verbs.WCRDMAWrite {
			t.Errorf("%+v", wc)
		}
		wantArrived(t, p.B.MR.Bytes(), 33, data)
	}
	rdmatest.Idle(t, p.B.CQ)
}

func TestRDMAWriteImm(t *testing.T) {
	forConnected(t, func(t *testing.T, p *rdmatest.Pair) {
		for i, n := range sizes {
			data := fresh(p, n, i)
			p.B.Recv(t, 5, 0, 0)
			p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Imm: 0xdeadbeef, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}}, p.B.MR, 33))
			if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.Opcode != verbs.WCRDMAWrite {
				t.Errorf("%+v", wc)
			}
			wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]
			imm, ok := wc.Imm()
			if !ok || imm != 0xdeadbeef || wc.Opcode != verbs.WCRecvRDMAWithImm || wc.WRID != 5 || wc.ByteLen != uint32(n) {
				t.Errorf("write of %d: %#x, %v, %+v", n, imm, ok, wc)
			}
			wantArrived(t, p.B.MR.Bytes(), 33, data)
		}
	})
}

func TestRDMARead(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	for i, n := range sizes {
		clear(p.A.MR.Bytes())
		rdmatest.Fill(p.B.MR.Bytes(), i)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{p.A.MR.SGE(100, n)}}, p.B.MR, 5))
		if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.Opcode != verbs.WCRDMARead || wc.ByteLen != uint32(n) {
			t.Errorf("read of %d: %+v", n, wc)
		}
		wantArrived(t, p.A.MR.Bytes(), 100, p.B.MR.Bytes()[5:5+n])
	}
	if !expect(t).readsPieces {
		return
	}
	// Into several SGEs.
	clear(p.A.MR.Bytes())
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{p.A.MR.SGE(0, 1000), p.A.MR.SGE(2000, 1000)}}, p.B.MR, 0))
	rdmatest.PollOK(t, p.A.CQ, 1)
	wantBytes(t, p.A.MR.Bytes()[:1000], p.B.MR.Bytes()[:1000])
	wantBytes(t, p.A.MR.Bytes()[2000:3000], p.B.MR.Bytes()[1000:2000])
}

// word returns a 64-bit value in memory, as atomics see it.
func word(mr *verbs.MR, off int) uint64 { return binary.NativeEndian.Uint64(mr.Bytes()[off:]) }

func setWord(mr *verbs.MR, off int, v uint64) { binary.NativeEndian.PutUint64(mr.Bytes()[off:], v) }

// hasAtomics reports whether the device has atomic operations. If it doesn't, they must be
// refused.
func hasAtomics(t *testing.T, p *rdmatest.Pair, ops ...verbs.Opcode) bool {
	t.Helper()
	if rdmatest.Must(p.Ctx.QueryDevice())(t).AtomicCap != verbs.AtomicNone {
		return true
	}
	for _, op := range ops {
		n, err := p.A.QP.PostSend(to(verbs.SendWR{Opcode: op, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, p.B.MR, 0))
		if n != 0 || !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("without atomics, posted %d of %v: %v", n, op, err)
		}
	}
	return false
}

func TestCompareSwap(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !hasAtomics(t, p, verbs.OpCompareSwap) {
		return
	}
	for _, c := range []struct{ have, compare, swap, after uint64 }{
		{0, 0, 0x1122334455667788, 0x1122334455667788},
		{1, 1, 1, 1},
		{5, 6, 7, 5}, // not equal: unchanged
		{1 << 63, 1 << 63, 1<<64 - 1, 1<<64 - 1},
	} {
		setWord(p.B.MR, 64, c.have)
		setWord(p.A.MR, 8, 99)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: c.compare, Swap: c.swap, SGL: []verbs.SGE{p.A.MR.SGE(8, 8)}}, p.B.MR, 64))
		if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.Opcode != verbs.WCCompareSwap {
			t.Errorf("%+v", wc)
		}
		if got := word(p.A.MR, 8); got != c.have {
			t.Errorf("%+v: returned %#x", c, got)
		}
		if got := word(p.B.MR, 64); got != c.after {
			t.Errorf("%+v: memory has %#x", c, got)
		}
	}
}

func TestFetchAdd(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !hasAtomics(t, p, verbs.OpFetchAdd) {
		return
	}
	sum := uint64(1<<64 - 3)
	setWord(p.B.MR, 0, sum)
	for _, add := range []uint64{1, 0, 5, 1 << 40, 1<<64 - 1} {
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: add, SGL: []verbs.SGE{p.A.MR.SGE(8, 8)}}, p.B.MR, 0))
		if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.Opcode != verbs.WCFetchAdd {
			t.Errorf("%+v", wc)
		}
		if got := word(p.A.MR, 8); got != sum {
			t.Errorf("returned %#x, want %#x", got, sum)
		}
		sum += add
		if got := word(p.B.MR, 0); got != sum {
			t.Errorf("memory has %#x, want %#x", got, sum)
		}
	}
}

func TestAtomicWrite(t *testing.T) {
	e := expect(t)
	p := rdmatest.NewPair(t, rdmatest.Default())
	attr := rdmatest.Must(p.Ctx.QueryDevice())(t)
	if has := attr.DeviceCapFlagsEx&verbs.DeviceAtomicWrite != 0; has != e.atomicWrite {
		t.Errorf("the device reports atomic write %v", has)
	}
	data := rdmatest.Pattern(8, 1)
	wr := to(verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: data}, p.B.MR, 16)
	if !e.postsAll {
		_, err := p.A.QP.PostSend(wr)
		wantInvalid(t, err)
		return
	}
	p.A.Send(t, wr)
	wc := rdmatest.Poll(t, p.A.CQ, 1)[0]
	if !e.atomicWrite {
		if wc.Status != verbs.WCLocQPOpErr {
			t.Errorf("a kernel without atomic write returns %v", wc.Err())
		}
		return
	}
	if wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCAtomicWrite {
		t.Errorf("%+v", wc)
	}
	wantArrived(t, p.B.MR.Bytes(), 16, data)
}

func TestFlush(t *testing.T) {
	e := expect(t)
	s := rdmatest.Default()
	if !e.flush {
		p := rdmatest.NewPair(t, s)
		_, err := p.PD.AllocMR(4096, verbs.MROptions{Access: verbs.AccessFlushGlobal})
		if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("registering memory for flush with a driver that lacks it: %v", err)
		}
		wr := to(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.FlushGlobal, FlushLength: 64}, p.B.MR, 0)
		if !e.postsAll {
			_, err := p.A.QP.PostSend(wr)
			wantInvalid(t, err)
			return
		}
		p.A.Send(t, wr)
		if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCLocQPOpErr {
			t.Errorf("a kernel without flush returns %v", wc.Err())
		}
		return
	}
	s.B.MR |= verbs.AccessFlushGlobal
	s.B.QP |= verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
	p := rdmatest.NewPair(t, s)
	for _, level := range []verbs.FlushLevel{verbs.FlushRange, verbs.FlushMR} {
		data := fresh(p, 2000, int(level))
		p.A.Send(t,
			to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 2000)}}, p.B.MR, 0),
			to(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.FlushGlobal, FlushLevel: level, FlushLength: 2000}, p.B.MR, 0))
		if wc := rdmatest.PollOK(t, p.A.CQ, 2)[1]; wc.Opcode != verbs.WCFlush {
			t.Errorf("%+v", wc)
		}
		wantArrived(t, p.B.MR.Bytes(), 0, data)
	}
	// The memory is not registered for this type of flush.
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.FlushPersistent, FlushLength: 2000}, p.B.MR, 0))
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("flush of a wrong type: %v", wc.Err())
	}
}

// TestAtomicsAreAtomic adds from both sides at the same time.
func TestAtomicsAreAtomic(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !hasAtomics(t, p, verbs.OpFetchAdd) {
		return
	}
	setWord(p.B.MR, 0, 0)
	add := to(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 1}, p.B.MR, 0)
	for range 10 {
		for _, e := range []*rdmatest.End{p.A, p.B} {
			var list []verbs.SendWR
			for i := range 8 {
				wr := add
				wr.SGL = []verbs.SGE{e.MR.SGE(1024+8*i, 8)}
				list = append(list, wr)
			}
			e.Send(t, list...)
		}
		rdmatest.PollOK(t, p.A.CQ, 8)
		rdmatest.PollOK(t, p.B.CQ, 8)
	}
	if got := word(p.B.MR, 0); got != 160 {
		t.Errorf("160 additions of 1 give %d", got)
	}
}
