package spin

import (
	"runtime"
	"sync"
	"testing"
)

// TestLock lets more goroutines count than there are processors. One of them is preempted
// repeatedly while it holds the lock.
func TestLock(t *testing.T) {
	const each = 10_000
	var l Lock
	var wg sync.WaitGroup
	n, goroutines := 0, 4*runtime.GOMAXPROCS(0)
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				l.Lock()
				n++
				if i == 0 {
					runtime.Gosched()
				}
				l.Unlock()
			}
		})
	}
	wg.Wait()
	if n != each*goroutines {
		t.Errorf("counted %d, want %d", n, each*goroutines)
	}
}

// TestPatience: a long wait calls patience once, before another goroutine runs.
func TestPatience(t *testing.T) {
	var l Lock
	l.Lock()
	waits, tries := 0, 0
	Until(&l.held, func(held uint32) bool {
		if held != 0 {
			return false
		}
		tries++
		return l.try()
	}, func() {
		waits++
		l.Unlock() // like a holder that needs the processor to unlock
	})
	if waits != 1 || tries != 1 {
		t.Errorf("waits %d times, tried %d times", waits, tries)
	}
}
