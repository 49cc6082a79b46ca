package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
)

// numberedCQ has completions with rising WRIDs, and reports broken entries as errors.
type numberedCQ struct {
	*fakeCQ
	next   uint64
	broken uint64 // the number of an entry that is an error
}

func (q *numberedCQ) Poll(wc []provider.WC) (int, error) {
	n, _ := q.fakeCQ.Poll(wc[:min(len(wc), 1)])
	if n == 0 {
		return 0, nil
	}
	q.next++
	if q.next == q.broken {
		return 0, &CQEError{Why: "is broken"}
	}
	wc[0] = provider.WC{WRID: q.next}
	return 1, nil
}

// TestAllInOrder: a loop returns all completions in order. A loop that ends leaves the others to
// the next loop. A broken entry doesn't end a loop, but a cancellation does.
func TestAllInOrder(t *testing.T) {
	d, _ := fakeContext(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 8}))(t)
	q := &numberedCQ{fakeCQ: cq.prov.(*fakeCQ), broken: 3}
	cq.prov = q
	q.ready = 6
	ctx, cancel := context.WithCancel(t.Context())
	var got []uint64
	var e *CQEError
	for wc, err := range cq.All(ctx) {
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
		if got = append(got, wc.WRID); len(got) == 4 {
			break
		}
	}
	if e == nil || q.ready != 2 {
		t.Errorf("%d left, broken entry: %v", q.ready, e)
	}
	go func() {
		asleep(cq, q.fakeCQ, 1)
		complete(cq, q.fakeCQ, 1)
		happen(t, cq)
		asleep(cq, q.fakeCQ, 2)
		cancel()
	}()
	var last error
	for wc, err := range cq.All(ctx) {
		if last = err; err == nil {
			got = append(got, wc.WRID)
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the loop ends with %v", last)
	}
	for i, id := range []uint64{1, 2, 0, 4, 5, 6, 7} {
		if i >= len(got) || got[i] != id {
			t.Errorf("the completions are %v", got)
			break
		}
	}
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range cq.All(t.Context()) {
		if n++; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	var none context.Context
	for _, err := range cq.All(none) {
		if n++; !errors.Is(err, ErrInvalid) {
			t.Errorf("without a context: %v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d errors, want 2", n)
	}
}

// TestCancelBesideAll: of two loops on one CQ, only the loop whose context ends does.
func TestCancelBesideAll(t *testing.T) {
	d, _ := fakeContext(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 8}))(t)
	q := cq.prov.(*fakeCQ)
	for _, first := range []int{0, 1} { // the one that reads the channel, and the other
		var cancels [2]func()
		ends := [2]chan error{make(chan error, 1), make(chan error, 1)}
		q.armed = 0
		for i := range ends {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			go func() {
				var last error
				for _, last = range cq.All(ctx) {
				}
				ends[i] <- last
			}()
			asleep(cq, q, 1+i)
		}
		cancels[first]()
		if err := soon(t, ends[first]); !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ends with %v", err)
		}
		select {
		case err := <-ends[1-first]:
			t.Errorf("the other loop ends with %v", err)
		default:
		}
		cancels[1-first]()
		if err := soon(t, ends[1-first]); !errors.Is(err, context.Canceled) {
			t.Errorf("the other loop ends with %v", err)
		}
	}
}

// wakingCQ has a completion after each sleep.
type wakingCQ struct {
	*fakeCQ
	event func()
}

func (q *wakingCQ) Poll([]provider.WC) (int, error) {
	if q.ready++; q.ready%3 == 0 {
		return 1, nil
	}
	return 0, nil
}

func (q *wakingCQ) Arm(bool, uint32) error {
	q.event()
	return nil
}

// TestAllAllocates: a loop allocates the same for many completions as for one, whether
// it sleeps before each or finds them.
func TestAllAllocates(t *testing.T) {
	d, _ := fakeContext(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 8}))(t)
	q := cq.prov.(*fakeCQ)
	event := binary.NativeEndian.AppendUint64(nil, cq.id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, prov := range map[string]provider.CQ{
		"found": &numberedCQ{fakeCQ: q},
		"woken": &wakingCQ{fakeCQ: q, event: func() { unix.Write(cq.chn.events.fd, event) }},
	} {
		cq.prov = prov
		q.ready = 0
		if name == "found" {
			q.ready = 1 << 30
		}
		loop := func(n int) float64 {
			return testing.AllocsPerRun(10, func() {
				i := 0
				for _, err := range cq.All(ctx) {
					if err != nil {
						t.Error(err)
					}
					if i++; i == n {
						break
					}
				}
			})
		}
		if one, many := loop(1), loop(1000); many > one+10 {
			t.Errorf("%s: a loop over 1000 completions allocates %v times, over one %v times", name, many, one)
		}
	}
	cq.prov = q
}
