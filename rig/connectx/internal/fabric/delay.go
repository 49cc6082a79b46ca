package fabric

import (
	"container/heap"
	"time"
)

// pending is a packet in flight.
type pending struct {
	to     *Port
	p      *Packet
	at     time.Duration
	serial uint64 // keeps the order of packets that are due at the same time
}

// delayed is a heap of packets, ordered by their arrival time.
type delayed struct {
	q      []pending
	serial uint64
}

func (d *delayed) Len() int { return len(d.q) }
func (d *delayed) Less(i, j int) bool {
	if d.q[i].at != d.q[j].at {
		return d.q[i].at < d.q[j].at
	}
	return d.q[i].serial < d.q[j].serial
}
func (d *delayed) Swap(i, j int) { d.q[i], d.q[j] = d.q[j], d.q[i] }
func (d *delayed) Push(x any)    { d.q = append(d.q, x.(pending)) }
func (d *delayed) Pop() any {
	last := len(d.q) - 1
	x := d.q[last]
	d.q[last] = pending{}
	d.q = d.q[:last]
	return x
}

// Deliver delivers the delayed packets that are due, and returns when the next one is due
// (0 if there is none).
func (f *Fabric) Deliver() (next time.Duration) {
	for {
		f.mu.Lock()
		if len(f.delayed.q) == 0 {
			f.mu.Unlock()
			return 0
		}
		if at := f.delayed.q[0].at; at > f.c.Clock() {
			f.mu.Unlock()
			return at
		}
		d := heap.Pop(&f.delayed).(pending)
		up := d.to.up
		if up {
			f.delivered(d)
		} else {
			f.stats.Dropped++
		}
		f.mu.Unlock()
		if up {
			d.to.c.Receive(d.p)
		} else {
			d.p.Free()
		}
	}
}
