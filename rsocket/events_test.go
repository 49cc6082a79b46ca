package rsocket

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// TestEndedWhileArriving: a connection that ended before the manager knew it gets the reason, and
// no other connection does.
func TestEndedWhileArriving(t *testing.T) {
	m := &manager{conns: make(map[*rdmacm.ID]*Conn), early: make(map[*rdmacm.ID]error), arriving: 2}
	first, last := new(rdmacm.ID), new(rdmacm.ID)
	m.early[last] = errReset
	if why := m.arrived(first, new(Conn)); why != nil {
		t.Errorf("the first one: %v", why)
	}
	if why := m.arrived(last, new(Conn)); why != errReset || len(m.early) != 0 {
		t.Errorf("the last one: %v, want %v; %d are kept", why, errReset, len(m.early))
	}
	if len(m.conns) != 2 {
		t.Errorf("%d connections are known", len(m.conns))
	}
}

// TestLostChannel: if a channel is lost, all its connections end, also an arriving one, and the
// next connection has another channel.
func TestLostChannel(t *testing.T) {
	c := &Conn{ended: make(chan struct{})}
	m := &manager{conns: map[*rdmacm.ID]*Conn{new(rdmacm.ID): c}, early: make(map[*rdmacm.ID]error), arriving: 1}
	managers.now = m
	defer func() { managers.now = nil }()
	bad := errors.New("bad")
	m.lose(bad)
	select {
	case <-c.ended:
	default:
		t.Error("a connection goes on")
	}
	if why := m.arrived(new(rdmacm.ID), new(Conn)); !errors.Is(why, bad) {
		t.Errorf("one that arrives: %v", why)
	}
	if managers.now != nil {
		t.Error("the next one has the same channel")
	}
}

// TestLastLook: the queue is polled before a connection ends because of an event: bytes that
// arrived before can be read.
func TestLastLook(t *testing.T) {
	c := &Conn{ended: make(chan struct{})} // its queue, which is none, fails
	if c.peerGone(errReset); c.err == nil || c.err == errReset {
		t.Errorf("the connection has ended with %v, not with what the queue says", c.err)
	}
}

// TestWakesWhileArming: a call that is about to wait is woken by events during arming.
func TestWakesWhileArming(t *testing.T) {
	c := &Conn{phase: connReleased, ended: make(chan struct{})} // released: nothing is polled
	c.rd.deadline.init()
	c.mu.Lock()
	defer c.mu.Unlock()
	// The queue, which is none, can't be armed, and that ends the connection.
	if err := c.await(&c.rd, func(c *Conn) (bool, error) { return false, c.err }); err == nil || err != c.err {
		t.Errorf("%v, the connection has ended with %v", err, c.err)
	}
	if len(c.rd.deadline.wake) != 1 {
		t.Error("nobody was woken")
	}
}

// TestRestWithoutPlace: a connection whose peer takes nothing doesn't keep others from being
// released while it waits.
func TestRestWithoutPlace(t *testing.T) {
	c := &Conn{phase: connReleased, ended: make(chan struct{}), manager: &manager{users: 2}}
	c.armed.Store(true)
	c.end.deadline.init()
	finished := make(chan error)
	go func() { finished <- c.finish(time.Hour) }()
	for !c.end.waiting.Load() {
		time.Sleep(time.Millisecond)
	}
	if n := len(releasing); n != 0 {
		t.Errorf("%d of the %d places are taken", n, cap(releasing))
	}
	c.mu.Lock()
	c.out.ended = true
	c.mu.Unlock()
	c.end.deadline.signal()
	if err := <-finished; err != nil {
		t.Error(err)
	}
	if n := len(releasing); n != 0 {
		t.Errorf("%d places are kept", n)
	}
}
