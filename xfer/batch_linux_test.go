package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

// Several goroutines wait for a batch and cancel it, while one starts it again and again. A nil error
// says that all is there, and no wait and no poller is left waiting.
func TestManyWaiters(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	mine, theirs := memory(t, m.a, 1000, 1), memory(t, m.b, 1000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
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
		for i := range 1000 {
			fill(mine.Bytes(), byte(i))
			rdmatest.Check(t, m.peer.Start(&b))
			switch err := b.Wait(ctx); {
			case name == "Cancel" && errors.Is(err, xfer.ErrCanceled):
			case err != nil:
				t.Fatalf("%s: %v", name, err)
			case !bytes.Equal(mine.Bytes(), theirs.Bytes()):
				t.Fatalf("%s: success, and the bytes aren't there", name)
			}
		}
		over.Store(true)
		b.Wait(ctx) // so that there is a token
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
