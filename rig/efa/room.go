//go:build linux

package main

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// A room has all adapters and the wire that joins them. One goroutine runs them. Other
// goroutines put their functions into its inbox.
type room struct {
	wire     *wire.Wire
	machines []*machine

	mu    sync.Mutex
	inbox []func()
	wake  chan struct{}
}

func newRoom(w *wire.Wire) *room { return &room{wire: w, wake: make(chan struct{}, 1)} }

// post makes the room's goroutine run f, in the order of the posts.
func (r *room) post(f func()) {
	r.mu.Lock()
	r.inbox = append(r.inbox, f)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// call posts f and waits until it has run.
func (r *room) call(f func()) {
	done := make(chan struct{})
	r.post(func() {
		f()
		close(done)
	})
	<-done
}

// keepAlive is how often the adapters tell their drivers that they work.
const keepAlive = time.Second

// run runs the adapters, forever.
func (r *room) run(now func() time.Duration) {
	timer := time.NewTimer(time.Hour)
	var work, doing []func()
	alive := now()
	for {
		r.mu.Lock()
		work, r.inbox = r.inbox, doing[:0]
		r.mu.Unlock()
		for i, f := range work {
			f()
			work[i] = nil
		}
		doing = work
		if t := now(); t-alive >= keepAlive {
			alive = t
			for _, m := range r.machines {
				m.device.KeepAlive()
			}
		}
		if r.wire.Deliver() || len(work) > 0 {
			continue
		}
		wait := alive + keepAlive - now()
		if due, ok := r.wire.Next(); ok {
			wait = min(wait, due-now())
		}
		timer.Reset(max(wait, 0))
		select {
		case <-r.wake:
		case <-timer.C:
		}
	}
}
