package rsocket

import (
	"sync"
	"time"
)

// A deadline is a time that can be changed while a goroutine waits for it.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{} // closed when the time has come
}

func newDeadline() deadline { return deadline{expired: make(chan struct{})} }

// set changes the time. The zero time never comes.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // the timer's function closes it
	}
	d.timer = nil
	over := d.over()
	if t.IsZero() {
		if over {
			d.expired = make(chan struct{})
		}
		return
	}
	if left := time.Until(t); left > 0 {
		if over {
			d.expired = make(chan struct{})
		}
		expired := d.expired
		d.timer = time.AfterFunc(left, func() { close(expired) })
		return
	}
	if !over {
		close(d.expired)
	}
}

func (d *deadline) over() bool {
	select {
	case <-d.expired:
		return true
	default:
		return false
	}
}

// wait returns a channel that is closed when the time has come.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}
