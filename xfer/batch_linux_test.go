package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

// Several goroutines wait for a batch and cancel it, while one starts it again and again. A nil error
// says that all is there, and no wait and no poller is left waiting.
func TestManyWaiters(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	mine, theirs := memory(t, m.a, 1000, 1), memory(t, m.b, 1000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, also := range map[string]func(b *xfer.Batch){
		"Wait": func(b *xfer.Batch) { b.Wait(ctx) },
		"Wait that ends at once": func(b *xfer.Batch) {
			var pending *xfer.PendingError
			if err := b.Wait(ended); err != nil && !errors.As(err, &pending) {
				t.Errorf("Wait: %v", err)
			}
		},
		"Cancel": func(b *xfer.Batch) { b.Cancel() },
		"Done":   func(b *xfer.Batch) { <-b.Done(); b.Wait(ctx) },
	} {
		var b xfer.Batch
		b.Write(remote, mine.All())
		rdmatest.Check(t, m.peer.Do(ctx, &b))
		var over atomic.Bool
		var others sync.WaitGroup
		for range 3 {
			others.Go(func() {
				for !over.Load() {
					also(&b)
				}
			})
		}
		for i := range 300 {
			fill(mine.Bytes(), byte(i))
			rdmatest.Check(t, m.peer.Start(&b))
			switch err := b.Wait(patient(t)); {
			case name == "Cancel" && errors.Is(err, xfer.ErrCanceled):
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case !bytes.Equal(mine.Bytes(), theirs.Bytes()):
				t.Errorf("%s: success, and the bytes aren't there", name)
			}
			if t.Failed() {
				break
			}
		}
		over.Store(true)
		b.Wait(patient(t)) // so that there is a token
		others.Wait()
	}
}

// OnDone may start a batch again that ends in Start, as when the peer is lost, without end.
func TestOnDoneStartsAgain(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	rdmatest.Check(t, m.peer.Close())
	theirs, mine := memory(t, m.b, 100, 1), memory(t, m.a, 100, 2)
	const times = 1000
	n, deepest := 0, 0
	done := make(chan bool)
	b := xfer.Batch{OnDone: func(b *xfer.Batch) {
		deepest = max(deepest, runtime.Callers(0, make([]uintptr, times)))
		if n++; n == times {
			close(done)
			return
		}
		rdmatest.Check(t, m.peer.Start(b))
	}}
	b.Write(grant(t, theirs.All(), xfer.Write).Remote(), mine.All())
	rdmatest.Check(t, m.peer.Start(&b))
	<-done
	if !errors.Is(b.Err(), xfer.ErrPeerLost) || deepest > 100 {
		t.Errorf("%v, in %d frames of the stack", b.Err(), deepest)
	}
}

// While the rails' goroutines spin, a goroutine that waits takes completions itself. OnDone is never called there.
func TestWaiterTakesCompletions(t *testing.T) {
	waits := func() bool {
		stack := make([]byte, 8<<10)
		return bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("xfer.(*Batch).look("))
	}
	var taken, others atomic.Int64
	m := twoEngines(t, 2, xfer.Options{Spin: time.Hour, Trace: func(s xfer.Trace) {
		if s.Kind == xfer.TraceDone && waits() {
			taken.Add(1)
			if s.Batch.OnDone != nil {
				others.Add(1)
			}
		}
	}})
	mine, theirs := memory(t, m.a, 4096, 1), memory(t, m.b, 4096, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	var stop atomic.Bool
	over := make(chan error, 1)
	var other xfer.Batch
	other.Write(remote.Slice(64, 64), mine.Slice(64, 64))
	other.OnDone = func(b *xfer.Batch) {
		err := b.Err()
		if waits() {
			err = errors.New("OnDone was called by a goroutine that waits for another batch")
		}
		if err == nil && !stop.Load() {
			err = m.peer.Start(b)
			if err == nil {
				return
			}
		}
		over <- err
	}
	rdmatest.Check(t, m.peer.Start(&other))
	eventually(t, "a goroutine that waits takes completions, also of another batch", func() bool {
		rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(0, 64), mine.Slice(0, 64)))
		return taken.Load() > 100 && others.Load() > 10
	})
	stop.Store(true)
	rdmatest.Check(t, <-over)
}
