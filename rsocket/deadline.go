package rsocket

import (
	"sync"
	"sync/atomic"
	"time"
)

// A deadline is a time that can be changed while a goroutine waits for it.
type deadline struct {
	past atomic.Bool   // the time has come
	wake chan struct{} // wakes the waiter, when the time has come or for other reasons

	mu    sync.Mutex
	at    time.Time // zero: never, or it is past
	timer *time.Timer
}

func (d *deadline) init() { d.wake = make(chan struct{}, 1) }

// set changes the time. The zero time never comes.
func (d *deadline) set(t time.Time) {
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

// tick is the timer's function. The time may have been changed since the timer fired.
func (d *deadline) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() && !time.Now().Before(d.at) {
		d.expire()
	}
}

func (d *deadline) expire() {
	d.past.Store(true)
	d.signal()
}

// signal wakes the waiter.
func (d *deadline) signal() {
	select {
	case d.wake <- struct{}{}:
	default: // a wakeup is pending already
	}
}
