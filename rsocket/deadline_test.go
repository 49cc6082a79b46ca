package rsocket

import (
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	var d deadline
	d.init()
	woken := func() bool {
		select {
		case <-d.wake:
			return true
		default:
			return false
		}
	}
	for _, at := range []time.Time{{}, time.Now().Add(time.Hour)} {
		if d.set(at); d.past.Load() || woken() {
			t.Fatalf("%v has come", at)
		}
	}
	for range 2 { // the second one finds what the first one has left
		if d.set(time.Now().Add(-time.Hour)); !d.past.Load() {
			t.Fatal("a time in the past has not come")
		}
	}
	if !woken() {
		t.Fatal("a wait that had begun was not woken")
	}
	if d.set(time.Time{}); d.past.Load() || woken() {
		t.Fatal("no deadline has come")
	}
	d.set(time.Now().Add(time.Millisecond))
	if <-d.wake; !d.past.Load() {
		t.Fatal("a wait was woken before the time had come")
	}
	if d.set(time.Now().Add(time.Hour)); d.past.Load() || woken() {
		t.Fatal("the new deadline has come")
	}
}

// TestDeadlineMoved: a timer that fires while the deadline is moved says nothing.
func TestDeadlineMoved(t *testing.T) {
	var d deadline
	d.init()
	for range 1000 {
		d.set(time.Now().Add(time.Microsecond))
		d.set(time.Now().Add(time.Hour))
		select {
		case <-d.wake: // the first time had come
		default:
		}
		if d.tick(); d.past.Load() {
			t.Fatal("a deadline has come that is an hour away")
		}
	}
	if n := testing.AllocsPerRun(100, func() { d.set(time.Now().Add(time.Hour)) }); n != 0 {
		t.Errorf("to move a deadline takes %v allocations, want 0", n)
	}
}
