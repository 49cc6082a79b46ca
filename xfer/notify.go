package xfer

import (
	"context"
	"fmt"
	"sync"
)

// A Notification is the news that all bytes of a peer's batch have been written.
type Notification struct {
	Peer *Peer  // whose batch it was
	Tag  uint64 // the number given to Batch.Notify
}

// Notified waits for the next notification of any peer. Those of a peer come in the order
// in which the writes of their batches were done. When ctx ends, no notification is lost. The bytes
// written, and the results of the batch's atomic operations, are in memory when Notified returns.
//
// A program that peers notify must call Notified: each peer can have 1024 notifications that were
// not taken, and its further batches with a notification then wait. Those of a peer that has gone
// still come. If one of its notifications was lost with it, those after that may come or not.
func (e *Engine) Notified(ctx context.Context) (Notification, error) {
	q := &e.notified
	for {
		n, ok, err := q.take()
		if ok {
			n.Peer.consumed()
			return n, nil
		}
		if err != nil {
			return Notification{}, err
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return Notification{}, fmt.Errorf("xfer: wait for a notification: %w", ctx.Err())
		}
	}
}

// untaken is the number of notifications that an engine keeps for each peer.
const untaken = 1024

// notifications is a queue. The peers' credits bound it.
type notifications struct {
	mu    sync.Mutex
	list  []Notification // a ring
	first int
	n     int
	more  chan struct{} // holds a token if there may be some, and when the queue has ended
	ended bool
}

func (q *notifications) add(n Notification) {
	q.mu.Lock()
	if q.n == len(q.list) {
		list := make([]Notification, max(64, 2*q.n))
		for i := range q.n {
			list[i] = q.list[(q.first+i)%q.n]
		}
		q.list, q.first = list, 0
	}
	q.list[(q.first+q.n)%len(q.list)] = n
	q.n++
	q.mu.Unlock()
	q.wake()
}

func (q *notifications) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// take returns the oldest notification, if there is one.
func (q *notifications) take() (n Notification, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 {
		if q.ended {
			q.wake() // the next waiter
			return n, false, errClosed
		}
		return n, false, nil
	}
	n, q.list[q.first] = q.list[q.first], Notification{}
	q.first = (q.first + 1) % len(q.list)
	if q.n--; q.n > 0 {
		q.wake() // another waiter
	}
	return n, true, nil
}

func (q *notifications) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wake()
}
