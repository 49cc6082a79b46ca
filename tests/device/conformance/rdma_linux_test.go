package conformance

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

func isFull(err error) bool { return errors.Is(err, verbs.ErrQueueFull) }

// to adds an address in the peer's memory to a request.
func to(wr verbs.SendWR, mr *verbs.MR, off int) verbs.SendWR {
	wr.Flags |= verbs.SendSignaled
	wr.Remote = mr.Remote().At(uint64(off))
	return wr
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

// atomic does one atomic operation of a scenario on the memory of b.
func atomic(t *testing.T, a, b *rdmatest.End, x *scenario.Atomic, id uint64) {
	t.Helper()
	wr, compare := x.Begin(a.MR, b.MR, id)
	a.Send(t, wr)
	if wc := rdmatest.PollOK(t, a.CQ, 1)[0]; wc.WRID != id || wc.Opcode != x.Op {
		t.Errorf("%v completed with %+v", x, wc)
	}
	if expected, seen := compare(); seen != "" {
		t.Errorf("%v: want %s, but %s", x, expected, seen)
	}
}

func TestAtomicOperations(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !hasAtomics(t, p, verbs.OpCompareSwap, verbs.OpFetchAdd) {
		return
	}
	for i, x := range scenario.Atomics(1) {
		if !x.Masked {
			atomic(t, p.A, p.B, &x, uint64(i))
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
