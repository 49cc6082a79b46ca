package stress

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// A writer writes to its part of the peer's memory, often with more requests at a time
// than its queue has room for.
type writer struct {
	qp      *verbs.QP
	near    int    // the offset of its part of the memory
	next    uint64 // WRID
	pending []uint64
	busy    int            // requests that no completion has covered yet
	id      map[uint64]int // the number of requests that a completion covers, by WRID
}

const part = 4096

// TestTinyQueues goes around the smallest possible queues with requests of random
// lengths, usually more than fit. Two queue pairs share one CQ, and the garbage collector
// runs all the time.
func TestTinyQueues(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	for _, depth := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			spec := rdmatest.Default()
			spec.Len, spec.CQE = 2*part, 128
			spec.Cap = verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 3, MaxRecvSGE: 1, MaxInlineData: 60}
			p := rdmatest.NewPair(t, spec)
			a, b := second(t, p, p.A, spec), second(t, p, p.B, spec)
			p.ToRTS(t, a, b.QP.Num())
			p.ToRTS(t, b, a.QP.Num())

			writers := [2]*writer{{qp: p.A.QP, id: map[uint64]int{}}, {qp: a.QP, near: part, id: map[uint64]int{}}}
			m := rand.New(rand.NewPCG(uint64(depth), 5))
			full := 0
			for round := range 400 {
				w := writers[m.IntN(2)]
				// rxe frees a request's place when it is executed, not when it is polled.
				for w.busy > 2*w.qp.Cap().MaxSendWR {
					drain(t, p.A.CQ, writers)
				}
				if n, ok := w.post(t, m, p); !ok {
					full++
				} else if n == 0 {
					t.Fatal("nothing was posted, without an error")
				}
				if m.IntN(3) > 0 {
					drain(t, p.A.CQ, writers)
				}
				if round%16 == 0 {
					for writers[0].busy+writers[1].busy > 0 {
						drain(t, p.A.CQ, writers)
					}
					for i, w := range writers {
						if !bytes.Equal(p.A.MR.Bytes()[w.near:w.near+part], p.B.MR.Bytes()[w.near:w.near+part]) {
							t.Fatalf("round %d: the memory of queue pair %d differs", round, i)
						}
					}
					runtime.GC()
				}
			}
			if full < 20 {
				t.Errorf("the queues were full %d times", full)
			}
		})
	}
}

// second creates another queue pair on an end's CQ.
func second(t *testing.T, p *rdmatest.Pair, e *rdmatest.End, s rdmatest.Spec) *rdmatest.End {
	t.Helper()
	qp := rdmatest.Must(p.PD.CreateQP(verbs.QPOptions{Type: s.Type, SendCQ: e.CQ, RecvCQ: e.CQ, Cap: s.Cap}))(t)
	return &rdmatest.End{CQ: e.CQ, MR: e.MR, QP: qp, Spec: e.Spec}
}

// post posts up to twice as many writes as fit, and reports whether all did.
func (w *writer) post(t *testing.T, m *rand.Rand, p *rdmatest.Pair) (n int, ok bool) {
	t.Helper()
	room := w.qp.Cap().MaxSendWR - w.busy
	wrs := make([]verbs.SendWR, 1+m.IntN(2*w.qp.Cap().MaxSendWR))
	for i := range wrs {
		wr := &wrs[i]
		at, length := w.near+m.IntN(part/2), 1+m.IntN(part/2)
		*wr = verbs.SendWR{WRID: w.next + uint64(i), Opcode: verbs.OpRDMAWrite, Remote: p.B.MR.Remote().At(uint64(at))}
		// If the whole list fits, one completion may cover several requests.
		if len(wrs) > room || i == len(wrs)-1 || m.IntN(2) == 0 {
			wr.Flags = verbs.SendSignaled
		}
		switch m.IntN(3) {
		case 0:
			length = min(length, w.qp.Cap().MaxInlineData)
			wr.Inline = bytes.Clone(p.A.MR.Bytes()[at : at+length])
		case 1:
			wr.SGL = []verbs.SGE{p.A.MR.SGE(at, length)}
		default:
			half := length / 2
			wr.SGL = []verbs.SGE{p.A.MR.SGE(at, half), p.A.MR.SGE(at+half, length-half)}
		}
	}
	if w.busy == 0 {
		// No request is reading this part, so it may change. The one request that is sure to
		// fit writes all of it below.
		rdmatest.Fill(p.A.MR.Bytes()[w.near:w.near+part], m.Int())
		wrs[0].Inline, wrs[0].SGL = nil, []verbs.SGE{p.A.MR.SGE(w.near, part)}
		wrs[0].Remote = p.B.MR.Remote().At(uint64(w.near))
		for i := range wrs[1:] {
			if wr := &wrs[1+i]; wr.Inline != nil {
				at := wr.Remote.Addr - p.B.MR.Addr()
				copy(wr.Inline, p.A.MR.Bytes()[at:])
			}
		}
	}
	n, err := w.qp.PostSend(wrs...)
	if n < min(room, len(wrs)) {
		t.Fatalf("%d of %d requests are posted, with room for %d: %v", n, len(wrs), room, err)
	}
	if (err != nil) != (n < len(wrs)) || err != nil && !errors.Is(err, verbs.ErrQueueFull) {
		t.Fatalf("%d of %d requests are posted: %v", n, len(wrs), err)
	}
	before := 0
	for i := range wrs[:n] {
		before++
		if wrs[i].Flags&verbs.SendSignaled != 0 {
			w.pending = append(w.pending, wrs[i].WRID)
			w.id[wrs[i].WRID] = before
			before = 0
		}
	}
	w.next += uint64(len(wrs))
	w.busy += n
	return n, err == nil
}

// drain polls some of the completions, which are in order for each queue pair.
func drain(t *testing.T, cq *verbs.CQ, writers [2]*writer) {
	t.Helper()
	var wcs [3]verbs.WC
	for deadline := time.Now().Add(rdmatest.Patience); writers[0].busy+writers[1].busy > 0; {
		n := rdmatest.Must(cq.Poll(wcs[:]))(t)
		for _, wc := range wcs[:n] {
			w := writers[0]
			if wc.QPNum != w.qp.Num() {
				w = writers[1]
			}
			if err := wc.Err(); err != nil || len(w.pending) == 0 || wc.WRID != w.pending[0] || wc.QPNum != w.qp.Num() {
				t.Fatalf("completed %+v, %v, want %v", wc, err, w.pending)
			}
			w.busy -= w.id[wc.WRID]
			delete(w.id, wc.WRID)
			w.pending = w.pending[1:]
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("completions don't come")
		}
		time.Sleep(10 * time.Microsecond)
	}
}
