package netconn

import (
	"testing"
	"time"
)

// newLink returns a link without a queue.
func newLink(p Phase) *Link {
	l := &Link{Phase: p, Ended: make(chan struct{})}
	l.initWaits()
	l.Waits.Process = func() {
		if l.Phase != Released {
			l.Poll(1)
		}
	}
	return l
}

// TestLastLook: the queue is polled before a connection ends because of an event: bytes that
// arrived before can be read.
func TestLastLook(t *testing.T) {
	l := newLink(Open)
	// The queue, which is none, fails.
	if l.peerGone(ErrReset); l.Err == nil || l.Err == ErrReset {
		t.Errorf("the connection has ended with %v, not with what the queue says", l.Err)
	}
}

// TestWakesWhileArming: a call that is about to wait is woken by events during arming.
func TestWakesWhileArming(t *testing.T) {
	l := newLink(Released) // nothing is polled
	l.Waits.Mu.Lock()
	defer l.Waits.Mu.Unlock()
	// The queue, which is none, can't be armed, and that ends the connection.
	if err := Await(&l.Waits, &l.Rd, l, func(l *Link) (bool, error) { return false, l.Err }); err == nil || err != l.Err {
		t.Errorf("%v, the connection has ended with %v", err, l.Err)
	}
	if len(l.Rd.Deadline.Wake()) != 1 {
		t.Error("nobody was woken")
	}
}

// TestRestWithoutPlace: a connection whose peer reads nothing doesn't keep other connections
// from being released while it waits.
func TestRestWithoutPlace(t *testing.T) {
	l := newLink(Released)
	l.manager = new(Manager)
	l.armed.Store(true)
	arrived := false
	l.Flushed = func() bool { return arrived }
	finished := make(chan error)
	go func() { finished <- l.finish(time.Hour, nil) }()
	for !l.End.Waiting() {
		time.Sleep(time.Millisecond)
	}
	if held := Held(); len(held) != 0 {
		t.Errorf("there are %v", held)
	}
	l.Waits.Mu.Lock()
	arrived = true
	l.Waits.Mu.Unlock()
	l.End.Deadline.Signal()
	if err := <-finished; err != nil {
		t.Error(err)
	}
	if held := Held(); len(held) != 0 {
		t.Errorf("there are still %v", held)
	}
}
