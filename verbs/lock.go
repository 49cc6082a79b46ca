package verbs

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A queueLock serialises the users of one queue. With single set, there must
// be one at a time: then it only watches, without atomics, for a second one.
//
// It is no sync.Mutex, since that is unlocked by a read-modify-write, for which
// amd64 waits until a doorbell has left the processor: longer than all the rest
// of a post. A lock that a store frees can't tell whether somebody waits, so
// those who wait look again and again, as with the spin locks of rdma-core. What
// is done under it takes nanoseconds, but for verbs that change the queue.
type queueLock struct {
	held    uint32 // 0 or 1
	single  bool
	waiting atomic.Int32
}

func (l *queueLock) Lock() {
	if !l.try() {
		l.wait()
	}
}

func (l *queueLock) try() bool {
	if l.single {
		free := l.held == 0
		l.held = 1
		return free
	}
	return atomic.CompareAndSwapUint32(&l.held, 0, 1)
}

func (l *queueLock) Unlock() {
	if l.single {
		l.held = 0
	} else {
		l.free()
	}
}

// wait is Lock when another has it.
func (l *queueLock) wait() {
	if l.single {
		panic("verbs: concurrent use of a queue made with SingleOwner")
	}
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	for pause := time.Microsecond; ; {
		for range 100 {
			if atomic.LoadUint32(&l.held) == 0 && l.try() {
				return
			}
			runtime.Gosched()
		}
		time.Sleep(pause)
		pause = min(2*pause, time.Millisecond)
	}
}

// yield lets those who wait have the lock, whom one who unlocks and locks in a
// loop would keep out.
func (l *queueLock) yield() { runtime.Gosched() }
