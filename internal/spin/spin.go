// Package spin waits for what takes nanoseconds: for those who hold a lock while
// they write to a queue or ring for it.
package spin

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/release"
)

// How long a word is looked at before another goroutine may run on this processor
// (some microseconds, in which a lock is handed on many times), and how often that is
// done before time is slept away: by then, who has the lock does something longer,
// or doesn't run.
const (
	looks  = 1 << 12
	yields = 1 << 7
)

// Until looks at the word until done says that it was what was waited for. Before it
// first lets another goroutine run it calls patience, once, unless that is nil.
func Until(word *uint32, done func(seen uint32) bool, patience func()) {
	for yielded, pause := 0, time.Microsecond; ; yielded++ {
		for range looks {
			if done(atomic.LoadUint32(word)) {
				return
			}
		}
		if yielded == 0 && patience != nil {
			patience()
		}
		runtime.Gosched()
		if yielded >= yields {
			time.Sleep(pause)
			pause = min(2*pause, time.Millisecond)
		}
	}
}

// A Lock is a lock that a store frees, where a sync.Mutex would wait until what was
// stored before it has left the processor. Its zero value is free.
type Lock struct{ held uint32 }

// Lock waits until nobody has the lock, and takes it.
func (l *Lock) Lock() {
	if !l.try() {
		Until(&l.held, func(held uint32) bool { return held == 0 && l.try() }, nil)
	}
}

func (l *Lock) try() bool { return atomic.CompareAndSwapUint32(&l.held, 0, 1) }

// Unlock frees the lock.
func (l *Lock) Unlock() { release.Store(&l.held, 0) }
