package verbs

import (
	"runtime"
	"slices"
	"testing"
)

// TestDestroyUnderLock: until a queue is destroyed and its memory released, nobody else posts to it,
// polls or arms it.
func TestDestroyUnderLock(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	var seen []string
	for verb, locks := range map[string][]*queueLock{
		"destroy_qp": {&x.qp.sendMu, &x.qp.recvMu}, "destroy_srq": {&x.srq.mu}, "destroy_cq": {&x.cq.mu},
	} {
		k.answerTo(verb, func(*fakeCall) error {
			seen = append(seen, verb)
			for i, l := range locks {
				if l.try() {
					l.Unlock()
					t.Errorf("%s: lock %d is free", verb, i)
				}
			}
			return errPassOn
		})
	}
	for _, o := range x.all() {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	if want := []string{"destroy_qp", "destroy_srq", "destroy_cq"}; !slices.Equal(seen, want) {
		t.Errorf("destroyed with %v, want %v", seen, want)
	}
}

// TestFatalBeforeRemoval: EventDeviceFatal is delivered to a subscriber before it can learn of the
// removal in another way.
func TestFatalBeforeRemoval(t *testing.T) {
	s := &subscriber{more: make(chan struct{}, 1)}
	done := make(chan struct{})
	close(done) // so that deviceGone panics where it closes done
	d := &Device{removal: removal{done: done}, events: events{subscribers: []*subscriber{s}}}
	func() {
		defer func() {
			if _, ok := recover().(runtime.Error); !ok {
				t.Error("deviceGone doesn't announce the removal")
			}
		}()
		d.deviceGone()
	}()
	if e, ok := s.take(); !ok || e != (Event{Type: EventDeviceFatal}) {
		t.Errorf("the subscriber has %+v, %v", e, ok)
	}
}

// TestEventsForSeveral: a goroutine that receives an event wakes another one on the same iterator
// while there are more events.
func TestEventsForSeveral(t *testing.T) {
	s := &subscriber{more: make(chan struct{}, 1)}
	for port := 1; port <= 3; port++ {
		s.add(Event{Type: EventPortErr, Port: port})
	}
	for port := 1; port <= 3; port++ {
		select {
		case <-s.more:
		default:
			t.Fatalf("nobody is woken for event %d", port)
		}
		if e, ok := s.take(); !ok || e.Port != port {
			t.Errorf("event %d: %+v, %v", port, e, ok)
		}
	}
	select {
	case <-s.more:
		t.Error("somebody is woken for no event")
	default:
	}
}
