package verbs

import (
	"runtime"
	"sync/atomic"
	"testing"
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
	for !done() {
		runtime.Gosched()
	}
}
