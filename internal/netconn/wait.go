package netconn

import (
	"os"
	"sync"
	"sync/atomic"
)

// A Side is the wait state of one direction of a connection. One goroutine at a time waits on it.
type Side struct {
	Call     sync.Mutex // held by the call that reads or writes
	Deadline Deadline
	waiting  atomic.Bool
	vain     int // waits in a row that have polled in vain; under Waits.Mu
	skip     int // waits to come that don't poll; under Waits.Mu
}

// mostSkipped is the maximum number of waits in a row that don't poll.
const mostSkipped = 15

// spin returns how often the next wait polls before it sleeps. Of many connections, most poll in vain, and
// keep the processor from the others. So the more waits in a row have polled in vain, the more of the next
// waits don't poll.
func (s *Side) spin(most int) int {
	if s.skip > 0 {
		s.skip--
		return 0
	}
	return most
}

// spun records that a wait has polled, and whether in vain.
func (s *Side) spun(vain bool) {
	if !vain {
		s.vain = 0
		return
	}
	s.skip = min(s.vain, mostSkipped)
	s.vain++
}

// Signal wakes the waiter.
func (s *Side) Signal() {
	if s.waiting.Load() {
		s.Deadline.Signal()
	}
}

// Waiting reports whether a goroutine sleeps, or is about to.
func (s *Side) Waiting() bool { return s.waiting.Load() }

// Waits is what the waits of a connection need. The funcs are called with Mu held.
type Waits struct {
	Mu      Mutex
	Spin    int         // how often a wait polls before it sleeps
	Process func()      // handles completions, and signals the sides whose wait is over
	Arm     func() bool // makes the CQ report its next completion
}

// Await waits until ready reports true, or returns why it won't. The caller holds w.Mu, and s.Call if other
// goroutines may wait on s. ready is called with w.Mu held.
func Await[C any](w *Waits, s *Side, c C, ready func(C) (bool, error)) error {
	for polls, spin := 0, 0; ; polls++ {
		ok, err := ready(c)
		if err != nil {
			return err
		}
		if s.Deadline.Past() { // even if it is ready
			return os.ErrDeadlineExceeded
		}
		if ok {
			if spin > 0 {
				s.spun(false)
			}
			return nil
		}
		if polls == 1 {
			spin = s.spin(w.Spin)
		}
		// Counted, not timed: reading the clock takes longer than a poll.
		if polls == 0 || polls < spin {
			w.Mu.yield(polls)
			w.Process()
			continue
		}
		if spin > 0 {
			s.spun(true)
			spin = 0
		}
		s.waiting.Store(true)
		w.Arm()
		w.Process()
		if ok, err = ready(c); !ok && err == nil {
			w.Mu.Unlock()
			<-s.Deadline.wake
			w.Mu.Lock()
			w.Process()
		}
		s.waiting.Store(false)
	}
}
