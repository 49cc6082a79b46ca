package stress

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// channelPair is a pair with a completion channel at each end.
func channelPair(t *testing.T, c *verbs.Device) *rdmatest.Pair {
	t.Helper()
	s := rdmatest.Default()
	s.Channel = true
	return rdmatest.PairOn(t, c, s)
}

// waiters starts waits of all kinds and returns the channel of their errors.
func waiters(ctx context.Context, t *testing.T, p *rdmatest.Pair) <-chan error {
	t.Helper()
	errs := make(chan error)
	without := rdmatest.Must(p.Ctx.CreateCQ(verbs.CQOptions{MaxCQE: 1}))(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _, err := p.A.Chan.Wait(ctx); errs <- err })
		wg.Go(func() {
			var last error
			for _, last = range p.Ctx.Events(ctx) {
			}
			errs <- last
		})
		wg.Go(func() {
			_, err := p.B.CQ.PollWait(ctx, make([]verbs.WC, 1))
			errs <- err
		})
		wg.Go(func() {
			var last error
			for _, last = range without.All(ctx) {
			}
			errs <- last
		})
	}
	go func() { wg.Wait(); close(errs) }()
	return errs
}

// wantAll fails the test unless all 32 waits end with the error.
func wantAll(t *testing.T, errs <-chan error, want error) {
	t.Helper()
	timeout := time.After(rdmatest.Patience)
	n := 0
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				if n != 32 {
					t.Errorf("%d waits ended, not 32", n)
				}
				return
			}
			n++
			if !errors.Is(err, want) {
				t.Errorf("a wait ended with %v, want %v", err, want)
			}
		case <-timeout:
			t.Fatalf("%d waits ended, the others didn't", n)
		}
	}
}

func TestCancelWaits(t *testing.T) {
	p := channelPair(t, rdmatest.Open(t))
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		errs := waiters(ctx, t, p)
		time.Sleep(5 * time.Millisecond) // some waits have begun, others are about to begin
		cancel()
		wantAll(t, errs, context.Canceled)
	}
	// A context that has ended before the wait begins.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantAll(t, waiters(ctx, t, p), context.Canceled)
	// No event was lost: the next wait gets its event.
	exchange(t, p)
}

// exchange sends a message and waits for it, in both ways.
func exchange(t *testing.T, p *rdmatest.Pair) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	rdmatest.Check(t, p.A.CQ.Arm(false))
	p.B.Recv(t, 1, 0, 64)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}})
	if cq, err := p.A.Chan.Wait(ctx); err != nil || cq != p.A.CQ {
		t.Fatalf("%v, %v", cq, err)
	}
	rdmatest.PollOK(t, p.A.CQ, 1)
	var wcs [4]verbs.WC
	if n, err := p.B.CQ.PollWait(ctx, wcs[:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}

var _ = rdmatest.Test(TestCloseEndsWaits, rdmatest.LongOn("mlx5"), rdmatest.AlsoSIW)

func TestCloseEndsWaits(t *testing.T) {
	for range 10 {
		rdmatest.CheckLeaks(t)
		c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
		errs := waiters(t.Context(), t, channelPair(t, c))
		time.Sleep(5 * time.Millisecond)
		// A wait that is about to begin is a running verb. Then Close returns an
		// error and must be called again.
		var err error
		for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(time.Millisecond) {
			if err = c.Close(); !errors.Is(err, verbs.ErrBusy) || time.Now().After(deadline) {
				break
			}
		}
		rdmatest.Check(t, err)
		wantAll(t, errs, verbs.ErrClosed)
	}
}

// TestManyWaiters: several goroutines wait on one CQ, each with room for one completion.
// All of them wake up even if completions arrive together.
func TestManyWaiters(t *testing.T) {
	p := channelPair(t, rdmatest.Open(t))
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	const n = 8
	for i := range 20 {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				var wc [1]verbs.WC
				if m, err := p.B.CQ.PollWait(ctx, wc[:]); m != 1 || err != nil || wc[0].Err() != nil {
					t.Errorf("%d, %v, %v", m, err, wc[0].Err())
				}
			})
		}
		var list []verbs.SendWR
		for i := range n {
			p.B.Recv(t, uint64(i), 0, 64)
			list = append(list, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}})
		}
		// Half the rounds find all of them asleep.
		time.Sleep(time.Duration(i%2) * 20 * time.Millisecond)
		p.A.Send(t, list...)
		wg.Wait()
		rdmatest.PollOK(t, p.A.CQ, n)
		if t.Failed() {
			return
		}
	}
}

// TestConcurrentClose closes objects while others use them. Each call succeeds, or its error
// says that the object is closed.
func TestConcurrentClose(t *testing.T) {
	times := 10
	if testing.Short() {
		times = 4
	}
	for range times {
		rdmatest.CheckLeaks(t)
		c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
		p := channelPair(t, c)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		run := func(f func() error) {
			for range 2 {
				wg.Go(func() {
					for {
						err := f()
						if errors.Is(err, verbs.ErrClosed) {
							return
						}
						if err != nil && !errors.Is(err, verbs.ErrQueueFull) {
							t.Error(err)
							return
						}
						select {
						case <-stop:
							return
						default:
						}
					}
				})
			}
		}
		sge := []verbs.SGE{p.A.MR.SGE(0, 64)}
		run(func() error { _, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: sge}); return err })
		run(func() error { _, err := p.A.QP.PostRecv(verbs.RecvWR{SGL: sge}); return err })
		run(func() error { _, err := p.A.CQ.Poll(make([]verbs.WC, 2)); return err })
		run(func() error { return p.A.CQ.Arm(false) })
		run(func() error { time.Sleep(time.Millisecond); _, _, err := p.A.QP.Query(); return err })
		run(func() error { time.Sleep(time.Millisecond); _, err := c.QueryPort(rdmatest.Port); return err })
		run(func() error {
			// If verbs ran without a pause, Close would never succeed.
			time.Sleep(time.Millisecond)
			mr, err := p.PD.AllocMR(4096, verbs.MROptions{})
			if err != nil {
				return err
			}
			if err := mr.Close(); err != nil && !errors.Is(err, verbs.ErrBusy) {
				return err
			}
			return nil
		})
		var err error
		for deadline := time.Now().Add(rdmatest.Patience); ; {
			if err = c.Close(); !errors.Is(err, verbs.ErrBusy) || time.Now().After(deadline) {
				break
			}
		}
		close(stop)
		wg.Wait()
		rdmatest.Check(t, err)
	}
}
