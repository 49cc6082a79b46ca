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

// keepQP keeps copies of what is posted: of wrs, the first shown are so to the
// device. With short set, it takes short requests as such.
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

// built are requests, and how they are built.
func built() ([]SendWR, func(b *SendBuilder)) {
	list := []SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: 6}}
	data := []byte("inline")
	want := []SendWR{
		{WRID: 1, Opcode: OpSend, Flags: SendSignaled, SGL: list[:1]},
		{WRID: 1, Opcode: OpRDMAWrite, Flags: SendSignaled, Remote: Remote{Addr: 10, RKey: 9}, SGL: list[1:]},
		{WRID: 1, Opcode: OpSendImm, Flags: SendSignaled, Imm: 7, Inline: data},
		{WRID: 2, Opcode: OpSendInv, Flags: SendFence, InvalidateRKey: 8, SGL: list},
		{WRID: 2, Opcode: OpRDMAWrite, Flags: SendFence, Remote: Remote{Addr: 10, RKey: 9}},
		{WRID: 2, Opcode: OpRDMAWriteImm, Flags: SendFence, Remote: Remote{Addr: 10, RKey: 9}, Imm: 11},
		{WRID: 2, Opcode: OpRDMARead, Flags: SendFence, Remote: Remote{Addr: 10, RKey: 9}, SGL: list},
		{WRID: 2, Opcode: OpCompareSwap, Flags: SendFence, Remote: Remote{Addr: 16, RKey: 9}, Compare: 12, Swap: 13, SGL: []SGE{{Length: 8}}},
		{WRID: 2, Opcode: OpFetchAdd, Flags: SendFence, Remote: Remote{Addr: 16, RKey: 9}, Add: 14, SGL: []SGE{{Length: 8}}},
		{WRID: 2, Opcode: OpLocalInv, Flags: SendFence, InvalidateRKey: 15},
	}
	return want, func(b *SendBuilder) {
		b.WRID, b.Flags = 1, SendSignaled
		b.Send()
		b.SetSGE(list[0])
		b.RDMAWrite(9, 10)
		b.SetSGEList(list)
		b.SetSGE(list[1])
		b.SendImm(7)
		b.SetInlineData(data)
		b.WRID, b.Flags = 2, SendFence
		b.SendInv(8)
		b.SetSGE(list[0])
		b.SetSGEList(list)
		b.RDMAWrite(9, 10)
		b.RDMAWriteImm(9, 10, 11)
		b.RDMARead(9, 10)
		b.SetSGEList(list)
		b.CompareSwap(9, 16, 12, 13)
		b.SetSGE(SGE{Length: 8})
		b.FetchAdd(9, 16, 14)
		b.SetSGE(SGE{Length: 8})
		b.LocalInv(15)
	}
}

// What is built is what would have been posted.
func TestSendBuilder(t *testing.T) {
	want, build := built()
	for _, short := range []bool{false, true} {
		posting, posted := keepRC()
		if n, err := posting.PostSend(want...); n != len(want) || err != nil {
			t.Fatal(n, err)
		}
		qp, p := keepRC()
		p.short = short
		for range 3 { // in the places of the round before
			p.wrs, p.shown, p.rung = nil, 0, 0
			b := qp.StartSends()
			build(&b)
			if n, err := b.Complete(); n != len(want) || err != nil {
				t.Fatal(n, err)
			}
			if d := cmp.Diff(posted.wrs, p.wrs, cmpopts.EquateEmpty()); d != "" || p.shown != len(want) || p.rung != 1 {
				t.Errorf("%d shown, %d doorbells, other than posted:\n%s", p.shown, p.rung, d)
			}
		}
	}
}

// Short requests go to the provider as such, in any number.
func TestSendBuilderShort(t *testing.T) {
	qp, p := keepRC()
	p.short = true
	for n := range 50 {
		p.wrs, p.shown, p.rung, p.shots = nil, 0, 0, 0
		b := qp.StartSends()
		for i := range n {
			b.WRID, b.Flags = uint64(i), SendSignaled
			b.RDMAWriteImm(uint32(2*i), uint64(3*i), uint32(4*i))
			b.SetSGE(SGE{Addr: uint64(5 * i), Length: 6, LKey: uint32(7 * i)})
		}
		if m, err := b.Complete(); m != n || err != nil {
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

// One that is refused takes all back, and so does Abort.
func TestSendBuilderTakesBack(t *testing.T) {
	mw := window(MWType2)
	for name, refused := range map[string]struct {
		build func(b *SendBuilder)
		want  error
	}{
		"unknown flags":    {func(b *SendBuilder) { b.Flags = 1 << 20; b.Send(); b.Flags = 0; b.Send() }, ErrInvalid},
		"too long":         {func(b *SendBuilder) { b.Send(); b.SetSGE(SGE{Length: 1 << 31}); b.Send() }, ErrInvalid},
		"inline and SGE":   {func(b *SendBuilder) { b.Send(); b.SetSGE(SGE{Length: 1}); b.SetInlineData([]byte{1}) }, ErrInvalid},
		"flush of nothing": {func(b *SendBuilder) { b.Flush(1, 2, 3, 0, 0) }, ErrInvalid},
		"bind of no MW":    {func(b *SendBuilder) { b.BindMW(nil, 1, MWBindInfo{}) }, ErrInvalid},
	} {
		qp, p := keepRC()
		p.short = true
		mw.ctx = qp.ctx
		mw.ref.RKey.Store(0x100)
		build := func() *SendBuilder {
			b := qp.StartSends()
			b.Send()
			b.SetSGE(SGE{Length: 1})
			b.BindMW(mw, 0x101, MWBindInfo{})
			b.BindMW(mw, 0x102, MWBindInfo{})
			mw.ref.RKey.Store(0x102) // as providers do
			refused.build(&b)
			return &b
		}
		if n, err := build().Complete(); n != 0 || !errors.Is(err, refused.want) || len(p.wrs) != 0 || p.takenBack != 1 || p.rung != 0 {
			t.Errorf("%s: %d, %v, %d left, %d doorbells", name, n, err, len(p.wrs), p.rung)
		}
		if k := mw.RKey(); k != 0x100 {
			t.Errorf("%s: the window's key is %#x", name, k)
		}
		build().Abort()
		if len(p.wrs) != 0 || p.takenBack != 2 || mw.RKey() != 0x100 {
			t.Errorf("%s: aborted, %d left, key %#x", name, len(p.wrs), mw.RKey())
		}
		if n, err := qp.PostSend(SendWR{Opcode: OpSend}); n != 1 || err != nil || p.rung != 1 || len(p.wrs) != 1 {
			t.Errorf("%s: after that, %d, %v", name, n, err)
		}
	}
	qp, p := keepRC()
	p.full = true
	b := qp.StartSends()
	b.Send()
	if n, err := b.Complete(); n != 0 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("full: %d, %v", n, err)
	}
}

// What comes too late is lost, and Complete says so.
func TestSendBuilderClosed(t *testing.T) {
	_, build := built()
	qp, p := keepRC()
	p.short = true
	var none *QP
	b, ofNone := qp.StartSends(), none.StartSends()
	b.Send()
	b.Abort()
	for _, b := range []*SendBuilder{&b, &ofNone, new(SendBuilder)} {
		build(b)
		b.Abort()
		if n, err := b.Complete(); n != 0 || !errors.Is(err, ErrClosed) || len(p.wrs) != 0 {
			t.Errorf("%d, %v, %d posted", n, err, len(p.wrs))
		}
	}
	last := qp.StartSends()
	defer func() {
		if recover() == nil {
			t.Error("data without an operation went unnoticed")
		}
		last.Abort()
	}()
	last.SetSGE(SGE{Length: 1})
}

// TestSendBuilderOutlived: who has ended a batch can't touch the next one, which is
// another's: neither by the Abort that was deferred, nor by calls that come late.
// What was set for the first batch isn't for the second.
func TestSendBuilderOutlived(t *testing.T) {
	for _, short := range []bool{false, true} {
		for name, end := range map[string]func(*SendBuilder){
			"Complete": func(b *SendBuilder) { b.Complete() },
			"Abort":    (*SendBuilder).Abort,
		} {
			for lateName, late := range map[string]func(*SendBuilder){
				"Abort":      (*SendBuilder).Abort,
				"Complete":   func(b *SendBuilder) { b.Complete() },
				"Send":       (*SendBuilder).Send,
				"LocalInv":   func(b *SendBuilder) { b.LocalInv(1) },
				"RDMARead":   func(b *SendBuilder) { b.RDMARead(1, 2) },
				"SetSGE":     func(b *SendBuilder) { b.SetSGE(SGE{Addr: 99, Length: 99}) },
				"SetSGEList": func(b *SendBuilder) { b.SetSGEList([]SGE{{Addr: 99, Length: 99}, {}}) },
				"SetInline":  func(b *SendBuilder) { b.SetInlineData([]byte("late")) },
				"SetUDAddr":  func(b *SendBuilder) { b.SetUDAddr(nil, 99, 99) },
			} {
				qp, p := keepRC()
				p.short = short
				first := qp.StartSends()
				first.WRID, first.Flags = 1, SendSignaled
				first.Send()
				first.SetSGE(SGE{Addr: 1, Length: 1})
				end(&first)
				posted := len(p.wrs)

				second := qp.StartSends()
				second.RDMAWrite(2, 3)
				second.SetSGE(SGE{Addr: 4, Length: 5})
				late(&first)
				if n, err := second.Complete(); n != 1 || err != nil {
					t.Errorf("%s, late %s: %d, %v", name, lateName, n, err)
					continue
				}
				want := []provider.SendWR{{
					Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{Addr: 3, RKey: 2}, SGL: []provider.SGE{{Addr: 4, Length: 5}},
				}}
				if d := cmp.Diff(want, p.wrs[posted:], cmpopts.EquateEmpty()); d != "" {
					t.Errorf("%s, late %s: %s", name, lateName, d)
				}
			}
		}
	}
}

// refuseQP takes no short requests.
type refuseQP struct{ nullQP }

func (*refuseQP) PostShort([]provider.Short, bool) bool { return false }

func TestSendBuilderAllocatesNothing(t *testing.T) {
	for _, p := range []provider.QP{new(nullQP), new(refuseQP), new(takeQP)} {
		qp, _ := nullRC()
		qp.setProvider(p)
		qp.setState(QPRTS)
		if n := testing.AllocsPerRun(100, func() {
			b := qp.StartSends()
			defer b.Abort()
			for range 40 {
				b.RDMAWrite(1, 2)
				b.SetSGE(SGE{Length: 3})
			}
			if n, err := b.Complete(); n != 40 || err != nil {
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

// BenchmarkSendBuilder is what this package adds to a provider's post of a batch.
func BenchmarkSendBuilder(b *testing.B) {
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
	b := qp.StartSends()
	b.Flags = SendSignaled
	for i := range n {
		b.WRID = uint64(i)
		b.RDMAWrite(1, 2)
		b.SetSGE(SGE{Length: 3})
	}
	b.Complete()
}
