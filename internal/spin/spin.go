// Package spin implements waits of nanoseconds, such as for a lock that is held while a
// queue entry is written or a doorbell is rung.
package spin

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/memorder"
)

// A waiter reads the word looks times, which takes some microseconds, before it lets
// another goroutine run on this processor. A lock changes hands many times meanwhile. The
// first eager reads have no pause between them: most locks become free during these. A pause
// follows each later read. After yields such rounds the waiter sleeps between rounds: the
// holder of the lock is doing something longer, or isn't running.
//
// A pause takes 5 to 150 cycles, depending on the processor.
const (
	eager  = 1 << 7
	looks  = eager + 1<<8
	yields = 1 << 7
)

// Until reads the word until done reports true for its value. Before it lets another
// goroutine run for the first time, it calls patience, unless that is nil.
func Until(word *uint32, done func(seen uint32) bool, patience func()) {
	for yielded, rest := 0, time.Microsecond; ; yielded++ {
		for look := range looks {
			if done(atomic.LoadUint32(word)) {
				return
			}
			if look >= eager {
				pause()
			}
		}
		if yielded == 0 && patience != nil {
			patience()
		}
		runtime.Gosched()
		if yielded >= yields {
			time.Sleep(rest)
			rest = min(2*rest, time.Millisecond)
		}
	}
}

// A Lock is a lock whose Unlock is an ordinary store. The Unlock of a sync.Mutex
// waits until all earlier stores have left the processor. The zero Lock is unlocked.
type Lock struct{ held uint32 }

// Lock waits until the lock is free, and takes it.
func (l *Lock) Lock() {
	if !l.try() {
		Until(&l.held, func(held uint32) bool { return held == 0 && l.try() }, nil)
	}
}

func (l *Lock) try() bool { return atomic.CompareAndSwapUint32(&l.held, 0, 1) }

// Unlock frees the lock.
func (l *Lock) Unlock() { memorder.StoreRelease(&l.held, 0) }
