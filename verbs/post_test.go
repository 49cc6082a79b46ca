package verbs

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/provider"
)

// nullQP takes every request and forgets it.
type nullQP struct {
	provider.QP
	put, rung, takenBack int
	full                 bool
}

func (q *nullQP) PostSend(wrs []provider.SendWR, more bool) (int, error) {
	if q.full {
		return 0, provider.ErrQueueFull
	}
	q.put += len(wrs)
	if !more {
		q.rung++
	}
	return len(wrs), nil
}

func (q *nullQP) PostShort([]provider.Short, bool) bool { return false }
func (q *nullQP) PostOne(*provider.Short) bool          { return false }

func (q *nullQP) TakeBack() { q.takenBack++ }

func (q *nullQP) PostRecv(wrs []provider.RecvWR) (int, error) {
	q.put += len(wrs)
	q.rung++
	return len(wrs), nil
}

func nullRC() (*QP, *nullQP) {
	p := new(nullQP)
	qp := &QP{pd: new(PD), typ: RC, prov: p}
	qp.ctx = new(Context)
	qp.batch.qp = qp
	qp.setState(QPRTS)
	return qp, p
}

func window(t MWType) *MW {
	mw := new(MW)
	mw.ref.Type = uint8(t)
	return mw
}

func TestPostAllocatesNothing(t *testing.T) {
	qp, p := nullRC()
	if n := testing.AllocsPerRun(1000, func() {
		posted, err := qp.PostSend(
			SendWR{Opcode: OpSend, Flags: SendSignaled, SGL: []SGE{{Addr: 1, Length: 2, LKey: 3}, {}}},
			SendWR{Opcode: OpRDMAWrite, Inline: []byte{1, 2, 3}},
			SendWR{Opcode: OpFetchAdd, Add: 1, SGL: []SGE{{Length: 8}}})
		if posted != 3 || err != nil {
			t.Fatal(posted, err)
		}
		if posted, err := qp.PostRecv(RecvWR{SGL: []SGE{{Length: 5}}}); posted != 1 || err != nil {
			t.Fatal(posted, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for four requests", n)
	}
	if p.put != 4*1001 || p.rung != 2*1001 {
		t.Errorf("%d requests, %d doorbells: a batch must ring once", p.put, p.rung)
	}
}

// A refused request neither rings nor hides those before it.
func TestPostSendRefuses(t *testing.T) {
	mr := &MR{iova: 0x1000, length: 0x1000}
	tests := []struct {
		name string
		typ  QPType
		wr   SendWR
		want error
	}{
		{"unknown opcode", RC, SendWR{Opcode: 200}, ErrInvalid},
		{"unknown flags", RC, SendWR{Flags: 1 << 20}, ErrInvalid},
		{"inline and SGL", RC, SendWR{Opcode: OpSend, Inline: []byte{}, SGL: []SGE{{}}}, ErrInvalid},
		{"inline read", RC, SendWR{Opcode: OpRDMARead, Inline: []byte{1}}, ErrInvalid},
		{"too long", RC, SendWR{Opcode: OpSend, SGL: []SGE{{Length: 1 << 31}}}, ErrInvalid},
		{"length overflow", RC, SendWR{Opcode: OpSend, SGL: []SGE{{Length: 0xffffffff}, {Length: 2}}}, ErrInvalid},
		{"read on UC", UC, SendWR{Opcode: OpRDMARead}, ErrInvalid},
		{"local invalidate on UD", UD, SendWR{Opcode: OpLocalInv}, ErrInvalid},
		{"write on UD", UD, SendWR{Opcode: OpRDMAWrite}, ErrInvalid},
		{"UD without AH", UD, SendWR{Opcode: OpSend}, ErrInvalid},
		{"UD with a zero AH", UD, SendWR{Opcode: OpSend, AH: &AH{}}, ErrInvalid},
		{"odd atomic address", RC, SendWR{Opcode: OpFetchAdd, RemoteAddr: 4, SGL: []SGE{{Length: 8}}}, ErrInvalid},
		{"atomic into 4 bytes", RC, SendWR{Opcode: OpCompareSwap, SGL: []SGE{{Length: 4}}}, ErrInvalid},
		{"atomic write of 4 bytes", RC, SendWR{Opcode: OpAtomicWrite, Inline: make([]byte, 4)}, ErrInvalid},
		{"local invalidate with data", RC, SendWR{Opcode: OpLocalInv, SGL: []SGE{{}}}, ErrInvalid},
		{"flush of nothing", RC, SendWR{Opcode: OpFlush}, ErrInvalid},
		{"bind without MW", RC, SendWR{Opcode: OpBindMW}, ErrInvalid},
		{"bind of a type 1 MW", RC, SendWR{Opcode: OpBindMW, MW: window(MWType1), Bind: MWBindInfo{MR: mr}}, ErrInvalid},
		{"bind beyond the MR", RC, SendWR{Opcode: OpBindMW, MW: window(MWType2), Bind: MWBindInfo{MR: mr, Addr: 0x1001, Length: 0x1000}}, ErrInvalid},
		{"bind overflows", RC, SendWR{Opcode: OpBindMW, MW: window(MWType2), Bind: MWBindInfo{MR: mr, Addr: 0x1000, Length: ^uint64(0)}}, ErrInvalid},
		{"zero-based bind", RC, SendWR{Opcode: OpBindMW, MW: window(MWType2), Bind: MWBindInfo{Access: AccessZeroBased}}, ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			qp, p := nullRC()
			qp.typ = tt.typ
			qp.setState(QPRTS)
			if n, err := qp.PostSend(tt.wr); n != 0 || !errors.Is(err, tt.want) {
				t.Errorf("posted %d, error %v, want %v", n, err, tt.want)
			}
			if p.rung != 0 || p.put != 0 {
				t.Errorf("%d put, %d rung", p.put, p.rung)
			}
		})
	}
	qp, p := nullRC()
	if n, err := qp.PostSend(SendWR{Opcode: OpSend}, SendWR{Opcode: OpSend}, SendWR{Opcode: OpFlush}, SendWR{Opcode: OpSend}); n != 2 || err == nil {
		t.Errorf("posted %d, error %v, want 2 and the third's error", n, err)
	}
	if p.put != 2 || p.rung != 1 {
		t.Errorf("%d put, %d rung", p.put, p.rung)
	}
	p.full = true
	if n, err := qp.PostSend(SendWR{Opcode: OpSend}); n != 0 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("full queue: %d, %v", n, err)
	}
	for _, s := range []QPState{QPReset, QPInit, QPRTR} {
		qp.setState(s)
		if _, err := qp.PostSend(SendWR{Opcode: OpSend}); !errors.Is(err, ErrInvalid) {
			t.Errorf("send in %v: %v", s, err)
		}
	}
	qp.setState(QPReset)
	if _, err := qp.PostRecv(RecvWR{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("receive in RESET: %v", err)
	}
}

func TestSingleOwnerDetectsMisuse(t *testing.T) {
	l := queueLock{single: true}
	l.Lock()
	defer func() {
		if recover() == nil {
			t.Error("a second user inside was not noticed")
		}
	}()
	l.Lock()
}

// BenchmarkPostSend is what this package adds to a provider's post.
func BenchmarkPostSend(b *testing.B) {
	for _, bench := range []struct {
		name   string
		single bool
	}{{"locked", false}, {"single owner", true}} {
		b.Run(bench.name, func(b *testing.B) {
			qp, _ := nullRC()
			qp.sendMu.single = bench.single
			b.ReportAllocs()
			for b.Loop() {
				if _, err := qp.PostSend(SendWR{Opcode: OpRDMAWrite, Flags: SendSignaled, SGL: []SGE{{Length: 64}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
