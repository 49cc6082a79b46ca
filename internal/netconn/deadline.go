package netconn

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Deadline is a time that can be changed while a goroutine waits for it.
type Deadline struct {
	past atomic.Bool   // the time has come
	wake chan struct{} // wakes the waiter, when the time has come or for other reasons

	mu    sync.Mutex
	at    time.Time // zero: never, or it is past
	timer *time.Timer
}

// Init makes the deadline usable.
func (d *Deadline) Init() { d.wake = make(chan struct{}, 1) }

// Set changes the time. The zero time never comes.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at = time.Time{}
	left := time.Until(t)
	switch {
	case t.IsZero():
		d.past.Store(false)
	case left <= 0:
		d.expire()
	default:
		d.past.Store(false)
		d.at = time.Now().Add(left)
		if d.timer == nil {
			d.timer = time.AfterFunc(left, d.tick)
		} else {
			d.timer.Reset(left)
		}
	}
}

// Past reports whether the time has come.
func (d *Deadline) Past() bool { return d.past.Load() }

// Wake returns the channel that the waiter receives from.
func (d *Deadline) Wake() <-chan struct{} { return d.wake }

// tick is the timer's function. The time may have been changed since the timer fired.
func (d *Deadline) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() && !time.Now().Before(d.at) {
		d.expire()
	}
}

func (d *Deadline) expire() {
	d.past.Store(true)
	d.Signal()
}

// Signal wakes the waiter.
func (d *Deadline) Signal() {
	select {
	case d.wake <- struct{}{}:
	default: // a wakeup is pending already
	}
}
