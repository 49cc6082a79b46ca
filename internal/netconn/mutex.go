package netconn

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A Mutex is held most of the time by a polling goroutine, which yields it to waiters.
type Mutex struct {
	sync.Mutex
	wanted atomic.Int32 // goroutines that wait in Lock
}

// Lock locks the mutex.
func (m *Mutex) Lock() {
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
func (m *Mutex) yield(polls int) {
	if m.wanted.Load() > 0 || polls%1024 == 1023 {
		m.Unlock()
		runtime.Gosched()
		m.Lock()
	}
}
