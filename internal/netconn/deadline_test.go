package netconn

import (
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	var d Deadline
	d.Init()
	woken := func() bool {
		select {
		case <-d.wake:
			return true
		default:
			return false
		}
	}
	for _, at := range []time.Time{{}, time.Now().Add(time.Hour)} {
		if d.Set(at); d.Past() || woken() {
			t.Fatalf("%v has come", at)
		}
	}
	for range 2 { // the second one finds what the first one has left
		if d.Set(time.Now().Add(-time.Hour)); !d.Past() {
			t.Fatal("a time in the past has not come")
		}
	}
	if !woken() {
		t.Fatal("a wait that had begun was not woken")
	}
	if d.Set(time.Time{}); d.Past() || woken() {
		t.Fatal("no deadline has come")
	}
	d.Set(time.Now().Add(time.Millisecond))
	if <-d.wake; !d.Past() {
		t.Fatal("a wait was woken before the time had come")
	}
	if d.Set(time.Now().Add(time.Hour)); d.Past() || woken() {
		t.Fatal("the new deadline has come")
	}
}

// TestDeadlineMoved: a timer that fires while the deadline is moved has no effect.
func TestDeadlineMoved(t *testing.T) {
	var d Deadline
	d.Init()
	for range 1000 {
		d.Set(time.Now().Add(time.Microsecond))
		d.Set(time.Now().Add(time.Hour))
		select {
		case <-d.wake: // the first time had come
		default:
		}
		if d.tick(); d.Past() {
			t.Fatal("a deadline has come that is an hour away")
		}
	}
	if n := testing.AllocsPerRun(100, func() { d.Set(time.Now().Add(time.Hour)) }); n != 0 {
		t.Errorf("to move a deadline takes %v allocations, want 0", n)
	}
}
