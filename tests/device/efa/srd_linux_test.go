package efa

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// impair impairs the adapters' wire until the test ends.
func impair(t *testing.T, r control.Request) {
	t.Helper()
	r.Do = "faults"
	rdmatest.Check(t, r.Ask())
	t.Cleanup(func() { rdmatest.Check(t, control.Request{Do: "faults", Reorder: 0.2}.Ask()) })
}

// The wire's counters.
type wireStats struct{ Sent, Lost, Overtaken, NotReady uint64 }

func stats(t *testing.T) (s wireStats) {
	t.Helper()
	rdmatest.Check(t, control.Request{Do: "packets"}.Get(&s))
	return s
}

// receive posts n receives of 64 bytes, with IDs from first on.
func (s *side) receive(t *testing.T, first, n int) {
	t.Helper()
	for i := range n {
		_, err := s.qp.PostRecv(verbs.RecvWR{WRID: uint64(first + i), SGL: []verbs.SGE{s.sge(i*64, 64)}})
		rdmatest.Check(t, err)
	}
}

// number sends a message that consists of a number.
func (s *side) number(t *testing.T, to *side, n int) {
	t.Helper()
	rdmatest.Check(t, s.send(to, verbs.SendWR{WRID: uint64(n), Opcode: verbs.OpSendImm, Imm: uint32(n)}))
}

// completions polls until there are n completions, of any status.
func (s *side) completions(t *testing.T, n int) (all []verbs.WC) {
	t.Helper()
	wc := make([]verbs.WC, n)
	for deadline := time.Now().Add(rdmatest.Patience); len(all) < n; {
		m := rdmatest.Must(s.cq.Poll(wc[:n-len(all)]))(t)
		all = append(all, wc[:m]...)
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d completions: %+v", len(all), n, all)
		}
	}
	return all
}

func (s *side) empty(t *testing.T) {
	t.Helper()
	var wc [1]verbs.WC
	if n, err := s.cq.Poll(wc[:]); n != 0 || err != nil {
		t.Errorf("one more completion: %+v, %v", wc, err)
	}
}

func (s *side) move(t *testing.T, to verbs.QPState) {
	t.Helper()
	rdmatest.Check(t, s.qp.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState))
}

func (s *side) activate(t *testing.T) {
	t.Helper()
	rdmatest.Check(t, s.qp.Activate(verbs.ActivateOptions{Port: 1, QKey: qkey}))
}

// SRD messages that overtake each other, or are lost and sent again, arrive once.
func TestSRDReordered(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	before := stats(t)
	impair(t, control.Request{Reorder: 0.5, Drop: 0.1, Jitter: int64(time.Millisecond)})
	for range long(1, 40) {
		exchange(t, a, b, 1000, depth, 1000)
	}
	if after := stats(t); after.Overtaken == before.Overtaken || after.Lost == before.Lost {
		t.Errorf("%+v, before %+v: nothing went wrong", after, before)
	}
}

// A full send queue refuses a request, a full receive queue a receive. Messages wait until
// receives are posted. Each message arrives once.
func TestSRDFullQueues(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	before := stats(t)
	for range long(1, 40) {
		if refused := exchange(t, a, b, 300, 2, 300); refused == 0 {
			t.Error("the send queue was never full")
		}
	}
	if after := stats(t); after.NotReady == before.NotReady {
		t.Errorf("%+v, before %+v: no message has waited", after, before)
	}
	sends, recvs := a.qp.Cap().MaxSendWR, b.qp.Cap().MaxRecvWR
	for i := range sends {
		a.number(t, b, i)
	}
	if err := a.send(b, verbs.SendWR{Opcode: verbs.OpSend}); !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("one send more than %d: %v", sends, err)
	}
	two := []verbs.SGE{b.sge(0, 32), b.sge(32, 32)}
	posted := 0
	var err error
	for ; err == nil && posted <= recvs; posted++ {
		_, err = b.qp.PostRecv(verbs.RecvWR{SGL: two})
	}
	if posted--; posted != recvs || !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("after %d receives of %d: %v", posted, recvs, err)
	}
	if recvs < sends {
		t.Fatalf("a queue of %d receives for %d messages", recvs, sends)
	}
	arrived := make(map[uint32]bool)
	for _, wc := range b.completions(t, sends) {
		imm, ok := wc.Imm()
		if wc.Err() != nil || !ok || arrived[imm] {
			t.Errorf("%+v", wc)
		}
		arrived[imm] = true
	}
	for _, wc := range a.completions(t, sends) {
		if wc.Err() != nil {
			t.Errorf("%+v", wc)
		}
	}
	b.empty(t)
	a.empty(t)
}

// The next poll finds a completion whose event was lost. Until then, a wait with a deadline
// ends at the deadline, and no message is missed.
func TestSRDLostEvent(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	// A message is in flight for so long that the waiter sleeps before it arrives.
	impair(t, control.Request{Delay: int64(20 * time.Millisecond)})
	rdmatest.Check(t, control.Request{Do: "inject", HCA: 1, QPN: b.end.QPN, Kind: "event", N: 3}.Ask())
	missed := 0
	for i := range long(10, 200) {
		if i > 0 && i%10 == 0 {
			rdmatest.Check(t, control.Request{Do: "inject", HCA: 1, QPN: b.end.QPN, Kind: "event", N: 3}.Ask())
		}
		b.receive(t, i, 1)
		a.number(t, b, i)
		var wc [2]verbs.WC
		n := 0
		for begin := time.Now(); n == 0; {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			var err error
			n, err = b.cq.PollWait(ctx, wc[:])
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				missed++
			} else {
				rdmatest.Check(t, err)
			}
			if time.Since(begin) > rdmatest.Patience {
				t.Fatalf("message %d doesn't arrive", i)
			}
		}
		if imm, ok := wc[0].Imm(); n != 1 || wc[0].Err() != nil || !ok || imm != uint32(i) || wc[0].WRID != uint64(i) {
			t.Errorf("message %d: %d, %+v", i, n, wc[0])
		}
		if wc := a.completions(t, 1)[0]; wc.Err() != nil || wc.WRID != uint64(i) {
			t.Errorf("message %d: %+v", i, wc)
		}
	}
	b.empty(t)
	if missed == 0 {
		t.Error("no event got lost")
	}
}

// While a peer's queue pair goes through ERROR and RESET, a message either arrives or fails.
// Failed messages are sent again. In the end, each message has arrived once.
func TestSRDPeerFails(t *testing.T) {
	messages, rounds := long(200, 20_000), long(5, 400)
	a, b := pair(t, verbs.SRD)
	impair(t, control.Request{Reorder: 0.5, Jitter: int64(2 * time.Millisecond)})
	var todo []int
	for i := range messages {
		todo = append(todo, i)
	}
	arrived := make(map[uint64]int)
	failed := 0
	for round := 0; len(todo) > 0; round++ {
		n := min(len(todo), depth)
		b.receive(t, 0, n)
		for _, i := range todo[:n] {
			a.number(t, b, i)
		}
		todo = todo[n:]
		got := b.completions(t, n/2)
		breaks := round < rounds
		if breaks {
			b.move(t, verbs.QPErr)
		}
		flushed := 0
		for _, wc := range append(got, b.completions(t, n-n/2)...) {
			imm, ok := wc.Imm()
			switch {
			case wc.Status == verbs.WCWRFlushErr && breaks:
				flushed++
			case wc.Err() != nil || !ok:
				t.Errorf("%+v", wc)
			default:
				arrived[uint64(imm)]++
			}
		}
		for _, wc := range a.completions(t, n) {
			switch {
			case wc.Err() == nil && arrived[wc.WRID] != 1:
				t.Errorf("message %d was sent, and arrived %d times", wc.WRID, arrived[wc.WRID])
			case wc.Status == verbs.WCRemInvRDReqErr && breaks: // there is no such receiver
				todo = append(todo, int(wc.WRID))
				failed++
				flushed--
			default:
				rdmatest.Check(t, wc.Err())
			}
		}
		if flushed != 0 {
			t.Errorf("round %d: %d more receives were flushed than messages failed", round, flushed)
		}
		if breaks {
			b.move(t, verbs.QPReset)
			b.activate(t)
		}
	}
	for i := range uint64(messages) {
		if arrived[i] != 1 {
			t.Errorf("message %d arrived %d times", i, arrived[i])
		}
	}
	if failed == 0 {
		t.Error("no message has failed")
	}
	a.empty(t)
	b.empty(t)
}

// RESET ends a queue's requests, at the receiver and at the sender. Later completions are not
// mistaken for theirs.
func TestSRDReset(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	whole := func(t *testing.T, wcs []verbs.WC, first int) {
		t.Helper()
		seen := make(map[uint64]bool)
		for _, wc := range wcs {
			if wc.Err() != nil || seen[wc.WRID] || wc.WRID < uint64(first) {
				t.Errorf("%+v after RESET, requests begin at %d", wc, first)
			}
			seen[wc.WRID] = true
		}
	}
	t.Run("receiver", func(t *testing.T) {
		b.receive(t, 1000, depth)
		for i := range depth {
			a.number(t, b, i)
		}
		a.completions(t, depth)
		b.completions(t, depth/4) // and drop the others
		b.move(t, verbs.QPReset)
		b.empty(t)
		b.activate(t)
		b.receive(t, 2000, depth)
		for i := range depth {
			a.number(t, b, i)
		}
		whole(t, a.completions(t, depth), 0)
		whole(t, b.completions(t, depth), 2000)
	})
	t.Run("sender", func(t *testing.T) {
		impair(t, control.Request{Reorder: 0.5, Delay: int64(20 * time.Millisecond)})
		b.receive(t, 3000, depth)
		for i := range depth {
			a.number(t, b, i)
		}
		a.move(t, verbs.QPReset)
		a.activate(t)
		for i := range depth {
			a.number(t, b, 1000+i)
		}
		arrived := make(map[uint32]bool)
		for again := 0; again < depth; {
			for _, wc := range b.completions(t, 1) {
				imm, ok := wc.Imm()
				if wc.Err() != nil || !ok || arrived[imm] {
					t.Errorf("message %d: %+v", imm, wc)
				}
				if arrived[imm] = true; imm >= 1000 {
					again++
				}
				b.receive(t, 4000, 1)
			}
		}
		whole(t, a.completions(t, depth), 1000)
		a.empty(t)
	})
}
