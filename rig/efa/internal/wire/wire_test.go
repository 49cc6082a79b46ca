package wire

import (
	"testing"
	"time"
)

// A mailbox receives messages, unless it isn't ready.
type mailbox struct {
	got    []uint32
	status Status
}

func (b *mailbox) Receive(m *Message) Status {
	if b.status == OK {
		b.got = append(b.got, m.Imm)
	}
	return b.status
}

var home = GID{15: 1}

type clocked struct {
	*Wire
	now time.Duration
}

func newClocked(seed uint64, f Faults) *clocked {
	c := &clocked{}
	c.Wire = New(seed, func() time.Duration { return c.now })
	c.Faults = f
	return c
}

// run delivers everything until a time.
func (c *clocked) run(end time.Duration) {
	for {
		c.Deliver()
		due, ok := c.Next()
		if !ok || due > end {
			c.now = end
			return
		}
		c.now = max(c.now, due)
	}
}

func TestOrder(t *testing.T) {
	for _, reorder := range []float64{0, 0.3} {
		w, b := newClocked(1, Faults{Reorder: reorder}), &mailbox{}
		w.Attach(home, b)
		done := 0
		for i := range uint32(1000) {
			w.Send(&Message{To: home, Imm: i, Reliable: true, Done: func(m *Message, s Status) {
				if done++; s != OK {
					t.Errorf("status %d", s)
				}
			}})
		}
		w.run(time.Second)
		seen, disorder := map[uint32]bool{}, 0
		for i, v := range b.got {
			if seen[v] {
				t.Errorf("%d arrived twice", v)
			}
			seen[v] = true
			if v != uint32(i) {
				disorder++
			}
		}
		if len(b.got) != 1000 || done != 1000 || (disorder > 0) != (reorder > 0) || (w.Stats.Overtaken > 0) != (reorder > 0) {
			t.Errorf("reorder %v: %d arrived, %d done, %d not in order, %+v", reorder, len(b.got), done, disorder, w.Stats)
		}
	}
}

// The same seed has the same decisions.
func TestSeed(t *testing.T) {
	play := func(seed uint64) []uint32 {
		w, b := newClocked(seed, Faults{Reorder: 0.5, Loss: 0.2, Duplicate: 0.2, Jitter: time.Millisecond}), &mailbox{}
		w.Attach(home, b)
		for i := range uint32(100) {
			w.Send(&Message{To: home, Imm: i})
		}
		w.run(time.Second)
		return b.got
	}
	a, b, c := play(7), play(7), play(8)
	same := func(x, y []uint32) bool {
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if x[i] != y[i] {
				return false
			}
		}
		return true
	}
	if !same(a, b) || same(a, c) {
		t.Errorf("seed 7: %v\nagain:  %v\nseed 8: %v", a, b, c)
	}
}

// Reliable messages that get lost are late, others are gone. Only these arrive twice.
func TestLoss(t *testing.T) {
	for _, reliable := range []bool{true, false} {
		w, b := newClocked(1, Faults{Loss: 0.5, Duplicate: 0.5}), &mailbox{}
		w.Attach(home, b)
		for i := range uint32(1000) {
			w.Send(&Message{To: home, Imm: i, Reliable: reliable})
		}
		w.run(time.Second)
		s := w.Stats
		want := 1000
		if !reliable {
			want += int(s.Duplicated) - int(s.Lost)
		}
		if len(b.got) != want || s.Lost == 0 || (s.Duplicated == 0) != reliable {
			t.Errorf("reliable %v: %d arrived, not %d; %+v", reliable, len(b.got), want, s)
		}
	}
}

func TestNotReady(t *testing.T) {
	for _, c := range []struct {
		patience int
		ready    bool
		tries    uint64
		want     Status
	}{{0, false, 0, NotReady}, {3, false, 3, NotReady}, {-1, true, 50, OK}, {100, true, 50, OK}} {
		w, b := newClocked(1, Faults{}), &mailbox{status: NotReady}
		w.Attach(home, b)
		status := Status(99)
		w.Send(&Message{To: home, Reliable: true, Patience: c.patience, Done: func(_ *Message, s Status) { status = s }})
		w.run(49*retryInterval + 1)
		if c.ready {
			b.status = OK
		}
		w.run(time.Second)
		if status != c.want || w.Stats.NotReady != c.tries {
			t.Errorf("%+v: status %d after %d tries", c, status, w.Stats.NotReady)
		}
	}
}

func TestUnreachable(t *testing.T) {
	w, b := newClocked(1, Faults{Delay: time.Millisecond}), &mailbox{}
	w.Attach(home, b)
	var status Status
	w.Send(&Message{To: home, Reliable: true, Done: func(_ *Message, s Status) { status = s }})
	w.Attach(home, nil)
	w.run(time.Millisecond / 2)
	if status != OK {
		t.Error("it was done too early")
	}
	w.run(time.Second)
	if status != Unreachable || len(b.got) != 0 {
		t.Errorf("status %d", status)
	}
}
