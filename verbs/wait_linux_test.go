package verbs

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
)

// TestPollWaitFinds: completions already in the queue are returned at once, and the CQ isn't armed.
func TestPollWaitFinds(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	q := d.prov.(*fakeProvider).cqs[0]
	q.ready = 3
	for _, want := range []int{2, 1} {
		if n, err := x.cq.PollWait(canceled, make([]WC, 2)); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if q.armed != 0 {
		t.Errorf("armed %d times", q.armed)
	}
}

// TestPollWaitWakes: a woken wait returns the new completions, and doesn't arm again.
func TestPollWaitWakes(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	q := d.prov.(*fakeProvider).cqs[0]
	got := make(chan int)
	go func() {
		n, err := x.cq.PollWait(t.Context(), make([]WC, 4))
		if err != nil {
			t.Error(err)
		}
		got <- n
	}()
	yield(func() bool {
		x.cq.mu.Lock()
		defer x.cq.mu.Unlock()
		return q.armed == 1
	})
	x.cq.mu.Lock()
	q.ready = 2
	x.cq.mu.Unlock()
	// It may already be polling again, before it sleeps.
	if _, err := unix.Write(x.ch.events.fd, binary.NativeEndian.AppendUint64(nil, x.cq.id)); err != nil {
		t.Fatal(err)
	}
	if n := soon(t, got); n != 2 {
		t.Errorf("%d completions, want 2", n)
	}
	if q.armed != 1 {
		t.Errorf("armed %d times", q.armed)
	}
}

// An armedCQ keeps the arguments of each arming.
type armedCQ struct {
	provider.CQ
	solicited []bool
	events    []uint32
}

func (q *armedCQ) Arm(solicitedOnly bool, events uint32) error {
	q.solicited, q.events = append(q.solicited, solicitedOnly), append(q.events, events)
	return nil
}

// TestPollWaitLooksAgain: a completion between the first poll and the arming is found
// before the sleep, since it causes no event.
func TestPollWaitLooksAgain(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	q := x.cq.prov.(*fakeCQ)
	x.cq.prov = &lateCQ{fakeCQ: q}
	if n, err := x.cq.PollWait(canceled, make([]WC, 4)); n != 2 || err != nil || q.armed != 1 {
		t.Errorf("%d, %v, armed %d times", n, err, q.armed)
	}
}

// A lateCQ is a CQ whose completions arrive just before it is armed.
type lateCQ struct{ *fakeCQ }

func (q *lateCQ) Arm(solicitedOnly bool, events uint32) error {
	q.ready = 2
	return q.fakeCQ.Arm(solicitedOnly, events)
}

// TestArmings: each arming has its CQ's number of events so far. An event of a closed CQ is
// dropped.
func TestArmings(t *testing.T) {
	d, _ := fakeContext(t)
	ch := must(d.CreateCompChannel())(t)
	var cqs [2]*CQ
	var armed [2]*armedCQ
	for i := range cqs {
		cqs[i] = must(d.CreateCQ(CQOptions{MaxCQE: 1, Channel: ch}))(t)
		armed[i] = &armedCQ{CQ: cqs[i].prov}
		cqs[i].prov = armed[i]
	}
	happen := func(id uint64) {
		t.Helper()
		// The fake kernel's channel is an eventfd, which returns the written value.
		if _, err := unix.Write(ch.events.fd, binary.NativeEndian.AppendUint64(nil, id)); err != nil {
			t.Fatal(err)
		}
	}
	if cq := ch.cqOf([compEventLen]byte{0xff}); cq != nil {
		t.Errorf("an event of %p that is nobody's", cq)
	}
	for round, which := range []int{0, 0, 1, 0} {
		for i, cq := range cqs {
			if err := cq.Arm((round+i)%2 == 1); err != nil {
				t.Fatal(err)
			}
		}
		happen(cqs[which].id)
		if got, err := ch.Wait(t.Context()); got != cqs[which] || err != nil {
			t.Errorf("the event is of %p, %v; want %p", got, err, cqs[which])
		}
	}
	for i, want := range [2][]uint32{{0, 1, 2, 2}, {0, 0, 0, 1}} {
		for round := range want {
			if armed[i].events[round] != want[round] || armed[i].solicited[round] != ((round+i)%2 == 1) {
				t.Errorf("CQ %d was armed with %v and %v, want %v", i, armed[i].events, armed[i].solicited, want)
				break
			}
		}
	}
}

// A lockedSRQ is a provider's SRQ that must be called with the lock held.
type lockedSRQ struct {
	provider.SRQ
	t   *testing.T
	srq *SRQ
	err error
}

func (q *lockedSRQ) PostRecv(wrs []provider.RecvWR) (int, error) {
	if q.srq.mu.state == 0 {
		q.t.Error("the provider is called without the lock")
	}
	return len(wrs) - 1, q.err
}

// TestSRQPost: the provider is called with the lock held, the lock is free afterwards, and
// the provider's error gets the verb's name.
func TestSRQPost(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	x.srq.prov = &lockedSRQ{SRQ: x.srq.prov, t: t, srq: x.srq, err: provider.ErrQueueFull}
	n, err := x.srq.PostRecv(make([]RecvWR, 3)...)
	var e *OpError
	if n != 2 || !errors.Is(err, ErrQueueFull) || !errors.As(err, &e) || e.Op != "post SRQ receive" {
		t.Errorf("%d, %v", n, err)
	}
	if x.srq.mu.state != 0 {
		t.Error("the lock is held afterwards")
	}
}
