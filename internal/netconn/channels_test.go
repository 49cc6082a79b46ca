package netconn

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/rdmacm"
)

// TestEndedWhileArriving: a connection that ended before the manager knew it gets the reason, and
// no other connection does.
func TestEndedWhileArriving(t *testing.T) {
	m := &Manager{conns: make(map[*rdmacm.ID]Reports), early: make(map[*rdmacm.ID]error), arriving: 2}
	first, last := new(rdmacm.ID), new(rdmacm.ID)
	m.early[last] = ErrReset
	if why := m.arrived(first, Reports{}); why != nil {
		t.Errorf("the first one: %v", why)
	}
	if why := m.arrived(last, Reports{}); why != ErrReset || len(m.early) != 0 {
		t.Errorf("the last one: %v, want %v; %d are kept", why, ErrReset, len(m.early))
	}
	if len(m.conns) != 2 {
		t.Errorf("%d connections are known", len(m.conns))
	}
}

// TestLostChannel: if a channel is lost, all its connections end, even an arriving one, and
// the next connection has another channel.
func TestLostChannel(t *testing.T) {
	ended := false
	m := &Manager{conns: map[*rdmacm.ID]Reports{new(rdmacm.ID): {Gone: func(error) { ended = true }}}, early: make(map[*rdmacm.ID]error), arriving: 1}
	managers.now = m
	defer func() { managers.now = nil }()
	bad := errors.New("bad")
	m.lose(bad)
	if !ended {
		t.Error("a connection goes on")
	}
	if why := m.arrived(new(rdmacm.ID), Reports{}); !errors.Is(why, bad) {
		t.Errorf("one that arrives: %v", why)
	}
	if managers.now != nil {
		t.Error("the next one has the same channel")
	}
}
