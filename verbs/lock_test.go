package verbs

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestLockUnlessBatch gives up where a batch is being built, and also where one is
// begun while it waits for another user.
func TestLockUnlessBatch(t *testing.T) {
	var l queueLock
	l.Lock()
	got := make(chan bool)
	go func() { got <- l.lockUnlessBatch() }()
	yield(func() bool { return atomic.LoadInt32(&l.waiting) == 1 })
	atomic.StoreUint32(&l.held, heldByBatch)
	if <-got {
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
	if !<-got {
		t.Error("it doesn't wait for others")
	}
	go func() {
		l.waitForBatch()
		got <- l.batching()
	}()
	yield(func() bool { return atomic.LoadInt32(&l.waiting) == 1 })
	l.Unlock()
	if !<-got {
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

// within fails the test if a call doesn't end.
func within(t *testing.T, what string, call func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		call()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("%s doesn't end", what)
	}
}
