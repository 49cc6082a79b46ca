package rsocket

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A mutex is one that a goroutine which polls holds most of the time, and gives to others that want it.
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

// yield lets others have the mutex, between two polls. Without runtime.Gosched they rarely get it, because
// this goroutine is faster. But with it a poll takes several times as long. So it is also for other work only
// now and then.
func (m *mutex) yield(polls int) {
	if m.wanted.Load() > 0 || polls%1024 == 1023 {
		m.Unlock()
		runtime.Gosched()
		m.Lock()
	}
}
