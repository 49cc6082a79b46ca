package rsocket

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A mutex is held most of the time by a polling goroutine, which yields it to waiters.
type mutex struct {
	sync.Mutex
	wanted atomic.Int32 // goroutines that wait in Lock
}

func (m *mutex) Lock() {
	if m.TryLock() {
		return
	}
	m.wanted.Add(1)
	m.Mutex.Lock()
	m.wanted.Add(-1)
}

// yield lets waiters have the mutex, between two polls. Without runtime.Gosched they rarely get it, because
// this goroutine is faster. But with Gosched a poll takes several times as long. So if nobody waits, yield
// calls it only now and then, for other work.
func (m *mutex) yield(polls int) {
	if m.wanted.Load() > 0 || polls%1024 == 1023 {
		m.Unlock()
		runtime.Gosched()
		m.Lock()
	}
}
