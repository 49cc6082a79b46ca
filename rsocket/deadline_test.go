package rsocket

import (
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	over := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	d := newDeadline()
	waiting := d.wait()
	for _, at := range []time.Time{{}, time.Now().Add(time.Hour)} {
		if d.set(at); over(d.wait()) {
			t.Fatalf("%v has come", at)
		}
	}
	d.set(time.Now().Add(-time.Hour))
	if !over(waiting) || !over(d.wait()) {
		t.Fatal("a wait that had begun was not told")
	}
	if d.set(time.Time{}); over(d.wait()) {
		t.Fatal("no deadline has come")
	}
	d.set(time.Now().Add(time.Millisecond))
	<-d.wait()
	if d.set(time.Now().Add(time.Hour)); over(d.wait()) {
		t.Fatal("the new deadline has come")
	}
}
