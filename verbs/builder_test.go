package verbs

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// keepQP keeps copies of the posted requests. The doorbell was rung for the first shown of
// wrs. With short set, it takes short requests as such.
type keepQP struct {
	nullQP
	wrs   []provider.SendWR
	shown int
	short bool
	shots int // short requests
}

func (q *keepQP) PostSend(wrs []provider.SendWR, more bool) (int, error) {
	n, err := q.nullQP.PostSend(wrs, more)
	for _, wr := range wrs[:n] {
		wr.SGL, wr.Inline = slices.Clone(wr.SGL), slices.Clone(wr.Inline)
		q.wrs = append(q.wrs, wr)
	}
	if n == len(wrs) && !more {
		q.shown = len(q.wrs)
	}
	return n, err
}

func (q *keepQP) PostShort(list []provider.Short, more bool) bool {
	if !q.short || q.full {
		return false
	}
	var wrs []provider.SendWR
	for _, s := range list {
		if s.Data>>32 == 0 {
			return false
		}
		wrs = append(wrs, provider.SendWR{
			WRID: s.WRID, Opcode: uapi.IbUverbsWrOpcode(uint32(s.Operation)), Flags: uint32(s.Operation >> 32),
			Remote: provider.Remote{Addr: s.RemoteAddr, RKey: uint32(s.Key >> 32)}, Imm: uint32(s.Key),
			SGL: []provider.SGE{{Addr: s.Addr, Length: uint32(s.Data >> 32), LKey: uint32(s.Data)}},
		})
	}
	q.shots += len(list)
	q.PostSend(wrs, more)
	return true
}

func (q *keepQP) TakeBack() {
	q.wrs = q.wrs[:q.shown]
	q.nullQP.TakeBack()
}

func keepRC() (*QP, *keepQP) {
	qp, _ := nullRC()
	p := new(keepQP)
	qp.setProvider(p)
	qp.setState(QPRTS)
	return qp, p
}

// built returns requests, and a function that builds them.
func built() ([]SendWR, func(b *SendBuilder) error) {
	list := []SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: 6}}
	far := Remote{Addr: 16, RKey: 9}
	want := []SendWR{
		{WRID: 1, Opcode: OpSend, Flags: SendSignaled, SGL: list[:1]},
		{WRID: 2, Opcode: OpRDMAWrite, Flags: SendFence, Remote: far, SGL: list[1:]},
		{WRID: 3, Opcode: OpSendImm, Flags: SendSignaled, Imm: 7, Inline: []byte("inline")},
		{WRID: 4, Opcode: OpSendImm, Imm: 8, SGL: list[1:]},
		{WRID: 5, Opcode: OpSendInv, Flags: SendFence, InvalidateRKey: 8, SGL: list},
		{WRID: 6, Opcode: OpRDMAWrite, Flags: SendFence, Remote: far},
		{WRID: 7, Opcode: OpRDMAWriteImm, Flags: SendFence, Remote: far, Imm: 11, SGL: list[:1]},
		{WRID: 8, Opcode: OpRDMARead, Flags: SendFence, Remote: far, SGL: list[:1]},
		{WRID: 9, Opcode: OpCompareSwap, Remote: far, Compare: 12, Swap: 13, SGL: []SGE{{Length: 8}}},
		{WRID: 10, Opcode: OpMaskedFetchAdd, Remote: far, Add: 14, CompareMask: 15, SGL: []SGE{{Length: 8}}},
		{WRID: 11, Opcode: OpNop},
		{WRID: 12, Opcode: OpLocalInv, InvalidateRKey: 15},
		{WRID: 13, Opcode: OpSend, Flags: SendSolicited},
	}
	return want, func(b *SendBuilder) error {
		b.Send(1, SendSignaled, list[0])
		b.RDMAWrite(2, SendFence, far, list[1])
		b.Add(want[2])
		b.SendImm(4, 0, 8, list[1])
		b.Add(want[4])
		b.RDMAWrite(6, SendFence, far, SGE{})
		b.RDMAWriteImm(7, SendFence, far, 11, list[0])
		b.RDMARead(8, SendFence, far, list[0])
		for _, wr := range want[8:12] {
			b.Add(wr)
		}
		b.Send(13, SendSolicited, SGE{})
		return nil
	}
}

// TestSends: a builder makes the same requests as a post.
func TestSends(t *testing.T) {
	want, build := built()
	for _, short := range []bool{false, true} {
		posting, posted := keepRC()
		if n, err := posting.PostSend(want...); n != len(want) || err != nil {
			t.Fatal(n, err)
		}
		qp, p := keepRC()
		p.short = short
		for range 3 { // reusing the slots of the previous round
			p.wrs, p.shown, p.rung = nil, 0, 0
			if n, err := qp.Sends(build); n != len(want) || err != nil {
				t.Fatal(n, err)
			}
			if d := cmp.Diff(posted.wrs, p.wrs, cmpopts.EquateEmpty()); d != "" || p.shown != len(want) || p.rung != 1 {
				t.Errorf("%d shown, %d doorbells, other than posted:\n%s", p.shown, p.rung, d)
			}
		}
	}
}

// Reads of other types than RC's are refused, as posts of them are.
func TestSendsReads(t *testing.T) {
	qp, p := keepRC()
	p.short = true
	qp.typ = UC
	qp.setState(QPRTS)
	n, err := qp.Sends(func(b *SendBuilder) error {
		b.RDMARead(1, 0, Remote{}, SGE{Length: 1})
		return nil
	})
	if n != 0 || !errors.Is(err, ErrInvalid) || len(p.wrs) != 0 {
		t.Errorf("%d, %v", n, err)
	}
}

// Short requests go to the provider as such, in any number.
func TestSendsShort(t *testing.T) {
	qp, p := keepRC()
	p.short = true
	for n := range 50 {
		p.wrs, p.shown, p.rung, p.shots = nil, 0, 0, 0
		m, err := qp.Sends(func(b *SendBuilder) error {
			for i := range n {
				b.RDMAWriteImm(uint64(i), SendSignaled, Remote{Addr: uint64(3 * i), RKey: uint32(2 * i)}, uint32(4*i), SGE{Addr: uint64(5 * i), Length: 6, LKey: uint32(7 * i)})
			}
			return nil
		})
		if m != n || err != nil {
			t.Fatal(n, m, err)
		}
		if p.rung > 1 || p.shots != n || p.shown != n {
			t.Errorf("%d: %d doorbells, %d short, %d shown", n, p.rung, p.shots, p.shown)
		}
		for i, wr := range p.wrs {
			want := provider.SendWR{
				WRID: uint64(i), Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, Flags: uint32(SendSignaled),
				Remote: provider.Remote{Addr: uint64(3 * i), RKey: uint32(2 * i)}, Imm: uint32(4 * i),
				SGL: []provider.SGE{{Addr: uint64(5 * i), Length: 6, LKey: uint32(7 * i)}},
			}
			if d := cmp.Diff(want, wr); d != "" {
				t.Errorf("%d of %d: %s", i, n, d)
			}
		}
	}
}

// A refused request, an error and a panic each take all requests back.
func TestSendsTakesBack(t *testing.T) {
	mw := window(MWType2)
	own := errors.New("the caller's own")
	for name, refused := range map[string]struct {
		build func(b *SendBuilder) error
		want  error
	}{
		"unknown flags":    {func(b *SendBuilder) error { b.Send(1, 1<<20, SGE{}); b.Send(2, 0, SGE{}); return nil }, ErrInvalid},
		"too long":         {func(b *SendBuilder) error { b.Send(1, 0, SGE{Length: 1 << 31}); b.Send(2, 0, SGE{}); return nil }, ErrInvalid},
		"inline and SGE":   {func(b *SendBuilder) error { b.Add(SendWR{SGL: []SGE{{Length: 1}}, Inline: []byte{1}}); return nil }, ErrInvalid},
		"flush of nothing": {func(b *SendBuilder) error { b.Add(SendWR{Opcode: OpFlush}); return nil }, ErrInvalid},
		"bind of no MW":    {func(b *SendBuilder) error { b.Add(SendWR{Opcode: OpBindMW}); return nil }, ErrInvalid},
		"error":            {func(b *SendBuilder) error { b.Send(1, 0, SGE{Length: 1}); return own }, own},
		"panic":            {func(b *SendBuilder) error { b.Send(1, 0, SGE{Length: 1}); panic(own) }, own},
	} {
		qp, p := keepRC()
		p.short = true
		mw.dev = qp.dev
		mw.ref.RKey.Store(0x100)
		mw.ref.Addr.Store(0x1000)
		n, err := func() (n int, err error) {
			defer func() {
				if x := recover(); x != nil {
					err = x.(error)
				}
			}()
			return qp.Sends(func(b *SendBuilder) error {
				b.Send(1, 0, SGE{Length: 1})
				b.Add(SendWR{Opcode: OpBindMW, MW: mw, NewRKey: 0x101})
				b.Add(SendWR{Opcode: OpBindMW, MW: mw, NewRKey: 0x102})
				mw.ref.Rebind(&provider.SendWR{NewRKey: 0x102, Bind: provider.MWBind{Addr: 0x2000}}) // as providers do
				return refused.build(b)
			})
		}()
		if n != 0 || !errors.Is(err, refused.want) || len(p.wrs) != 0 || p.takenBack != 1 || p.rung != 0 {
			t.Errorf("%s: %d, %v, %d left, %d doorbells", name, n, err, len(p.wrs), p.rung)
		}
		if r := mw.Remote(); r != (Remote{0x1000, 0x100}) {
			t.Errorf("%s: the window is %v", name, r)
		}
		if n, err := qp.PostSend(SendWR{Opcode: OpSend}); n != 1 || err != nil || p.rung != 1 || len(p.wrs) != 1 {
			t.Errorf("%s: after that, %d, %v", name, n, err)
		}
	}
	qp, p := keepRC()
	p.full = true
	if n, err := qp.Sends(func(b *SendBuilder) error { b.Send(1, 0, SGE{}); return nil }); n != 0 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("full: %d, %v", n, err)
	}
}

// A request that comes too late is lost, and an empty batch posts nothing.
func TestSendsEnded(t *testing.T) {
	_, build := built()
	for _, short := range []bool{false, true} {
		qp, p := keepRC()
		p.short = short
		var late *SendBuilder
		if n, err := qp.Sends(func(b *SendBuilder) error { late = b; return nil }); n != 0 || err != nil || p.rung != 0 {
			t.Errorf("nothing: %d, %v", n, err)
		}
		build(late)
		given := errors.New("given up")
		if n, err := qp.Sends(func(b *SendBuilder) error { return given }); n != 0 || err != given || p.rung != 0 {
			t.Errorf("given up: %d, %v", n, err)
		}
		build(late)
		if n, err := qp.Sends(func(b *SendBuilder) error { b.Send(1, 0, SGE{Length: 1}); return nil }); n != 1 || err != nil || len(p.wrs) != 1 {
			t.Errorf("%d, %v, %d posted", n, err, len(p.wrs))
		}
	}
	var none *QP
	if n, err := none.Sends(build); n != 0 || !errors.Is(err, ErrClosed) {
		t.Errorf("no QP: %d, %v", n, err)
	}
}

// refuseQP takes no short requests.
type refuseQP struct{ nullQP }

func (*refuseQP) PostShort([]provider.Short, bool) bool { return false }

func TestSendsAllocatesNothing(t *testing.T) {
	for _, p := range []provider.QP{new(nullQP), new(refuseQP), new(takeQP)} {
		qp, _ := nullRC()
		qp.setProvider(p)
		qp.setState(QPRTS)
		if n := testing.AllocsPerRun(100, func() {
			n, err := qp.Sends(func(b *SendBuilder) error {
				for i := range 40 {
					b.RDMAWrite(uint64(i), 0, Remote{Addr: 2, RKey: 1}, SGE{Length: 3})
				}
				b.Add(SendWR{Opcode: OpCompareSwap, SGL: []SGE{{Length: 8}}})
				b.Add(SendWR{Opcode: OpSend, Inline: []byte("inline")})
				return nil
			})
			if n != 42 || err != nil {
				t.Fatal(n, err)
			}
		}); n != 0 {
			t.Errorf("%T: %v allocations", p, n)
		}
	}
}

// takeQP takes short requests, at no cost.
type takeQP struct{ nullQP }

func (*takeQP) PostShort([]provider.Short, bool) bool { return true }

// BenchmarkSends measures the cost that this package adds to a provider's post of a batch.
func BenchmarkSends(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			qp, _ := nullRC()
			qp.setProvider(new(takeQP))
			qp.setState(QPRTS)
			b.ReportAllocs()
			for b.Loop() {
				benchmarkBatch(qp, n)
			}
		})
	}
}

func benchmarkBatch(qp *QP, n int) {
	qp.Sends(func(b *SendBuilder) error {
		for i := range n {
			b.RDMAWrite(uint64(i), SendSignaled, Remote{Addr: 2, RKey: 1}, SGE{Length: 3})
		}
		return nil
	})
}
