package transport

import (
	"container/heap"
	"time"
)

// timers is a heap of queue pairs, ordered by their deadlines. An entry may be too early,
// because every acknowledgement moves the deadline. Then it goes back into the heap.
type timers []timer

type timer struct {
	at time.Duration
	q  *QP
}

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

// expire notifies the queue pairs whose deadlines have passed.
func (t *timers) expire(now time.Duration) {
	for len(*t) > 0 && (*t)[0].at <= now {
		x := heap.Pop(t).(timer)
		q := x.q
		if q.timerAt != x.at {
			continue // another entry of the same queue pair is valid
		}
		q.timerAt = 0
		if q.dead {
			continue
		}
		if q.deadline > now {
			q.setTimer()
		} else if q.deadline != 0 {
			q.deadline = 0
			q.expired()
		}
	}
}

func (t timers) next() time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[0].at
}

// wake requests a call of expired at time at. 0 cancels it, so no deadline may be 0.
func (q *QP) wake(at time.Duration) {
	q.deadline = at
	q.setTimer()
}

func (q *QP) setTimer() {
	if q.deadline != 0 && (q.timerAt == 0 || q.timerAt > q.deadline) {
		q.timerAt = q.deadline
		heap.Push(&q.e.timers, timer{q.deadline, q})
	}
}

// leastWait is the minimum of a shortened timer. On a busy machine, responses take up to
// that long.
const leastWait = 8 * time.Millisecond

// shortened returns how long a queue pair waits whose timer is d.
func (e *Engine) shortened(d time.Duration) time.Duration {
	if e.c.Hurry > 1 && d > leastWait {
		return max(d/time.Duration(e.c.Hurry), leastWait)
	}
	return d
}
