package verbs

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestLockUnlessBatch: lockUnlessBatch fails while a batch is being built, even if the
// batch begins during its wait for another user.
func TestLockUnlessBatch(t *testing.T) {
	var l queueLock
	l.Lock()
	got := make(chan bool)
	go func() { got <- l.lockUnlessBatch() }()
	yield(func() bool { return atomic.LoadInt32(&l.waiting) == 1 })
	atomic.StoreUint32(&l.state, lockedByBatch)
	if soon(t, got) {
		t.Error("it has taken the lock from a batch")
	}
	if l.lockUnlessBatch() {
		t.Error("it has taken the lock from a batch, at once")
	}
	l.Unlock()
	if !l.lockUnlessBatch() || l.batching() {
		t.Error("it doesn't take a free lock")
	}
	go func() { got <- l.lockUnlessBatch() }()
	yield(func() bool { return atomic.LoadInt32(&l.waiting) == 1 })
	l.Unlock()
	if !soon(t, got) {
		t.Error("it doesn't wait for others")
	}
	go func() {
		l.waitForBatch()
		got <- l.batching()
	}()
	yield(func() bool { return atomic.LoadInt32(&l.waiting) == 1 })
	l.Unlock()
	if !soon(t, got) {
		t.Error("a batch that waited isn't one")
	}
}

// yield lets other goroutines run until done.
func yield(done func() bool) {
	for end := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			panic("what this test waits for doesn't happen")
		}
	}
}

// patience ends tests that hang.
const patience = 2 * time.Minute

// soon receives from a channel, and fails the test if nothing arrives in time.
func soon[T any](t *testing.T, from <-chan T) (x T) {
	t.Helper()
	select {
	case x = <-from:
	case <-time.After(patience):
		t.Fatal("what this test waits for doesn't happen")
	}
	return x
}
