package rsocket

import (
	"os"
	"sync"
	"sync/atomic"
)

// A side is the wait state of one direction of a connection. One goroutine at a time waits on it.
type side struct {
	callMu   sync.Mutex // held by the call that reads or writes
	waiting  atomic.Bool
	deadline deadline
	vain     int // waits in a row that have polled in vain; under mu
	skip     int // waits to come that don't poll; under mu
}

// mostSkipped is the maximum number of waits in a row that don't poll.
const mostSkipped = 15

// spin returns how often the next wait polls before it sleeps. Of many connections, most poll in vain, and
// keep the processor from the others. So the more waits in a row have polled in vain, the more of the next
// waits don't poll.
func (s *side) spin(most int) int {
	if s.skip > 0 {
		s.skip--
		return 0
	}
	return most
}

// spun records that a wait has polled, and whether in vain.
func (s *side) spun(vain bool) {
	if !vain {
		s.vain = 0
		return
	}
	s.skip = min(s.vain, mostSkipped)
	s.vain++
}

// signal wakes the waiter.
func (s *side) signal() {
	if s.waiting.Load() {
		s.deadline.signal()
	}
}

// await waits until ready reports true, or returns why it won't. The caller holds mu, and s.callMu if other
// goroutines may wait on s. ready is called with mu held.
func (c *Conn) await(s *side, ready func(*Conn) (bool, error)) error {
	for polls, spin := 0, 0; ; polls++ {
		ok, err := ready(c)
		if err != nil {
			return err
		}
		if s.deadline.past.Load() { // even if it is ready
			return os.ErrDeadlineExceeded
		}
		if ok {
			if spin > 0 {
				s.spun(false)
			}
			return nil
		}
		if polls == 1 {
			spin = s.spin(c.o.Spin)
		}
		// Counted, not timed: reading the clock takes longer than a poll.
		if polls == 0 || polls < spin {
			c.mu.yield(polls)
			c.process()
			continue
		}
		if spin > 0 {
			s.spun(true)
			spin = 0
		}
		s.waiting.Store(true)
		c.arm()
		c.process()
		if ok, err = ready(c); !ok && err == nil {
			c.mu.Unlock()
			<-s.deadline.wake
			c.mu.Lock()
			c.process()
		}
		s.waiting.Store(false)
	}
}
