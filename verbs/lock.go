package verbs

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/internal/spin"
)

// A queueLock serialises the users of one queue. With single set, there must be only one user at a
// time: the queueLock doesn't lock, and only detects a second user, without atomics.
//
// A sync.Mutex would be too slow. Its Unlock is a read-modify-write instruction, for which amd64
// waits until a doorbell has left the processor. That takes longer than the rest of a post. The
// Unlock of a queueLock is an ordinary store. It can't know of waiters, so they spin, as with
// rdma-core's spin locks. The lock is held for nanoseconds, except by verbs that change the queue.
// waiting counts the waiters that have spun for so long that they yield.
type queueLock struct {
	state   uint32 // 0, 1, or lockedByBatch
	single  bool
	waiting int32
}

// lockedByBatch is the value of queueLock.state while QP.Sends builds a batch. Building may take long.
const lockedByBatch = 2

func (l *queueLock) Lock() {
	if !l.try() {
		l.wait(false)
	}
}

// tryForBatch and waitForBatch are the two halves of Lock for QP.Sends.
func (l *queueLock) tryForBatch() bool {
	if l.single {
		free := l.state == 0
		l.state = lockedByBatch
		return free
	}
	return atomic.CompareAndSwapUint32(&l.state, 0, lockedByBatch)
}

func (l *queueLock) waitForBatch() {
	l.wait(false)
	atomic.StoreUint32(&l.state, lockedByBatch)
}

// lockUnlessBatch is like Lock, but returns false while a batch is being built.
func (l *queueLock) lockUnlessBatch() bool {
	return !l.batching() && (l.try() || l.wait(true))
}

// batching reports whether a batch is being built.
func (l *queueLock) batching() bool { return atomic.LoadUint32(&l.state) == lockedByBatch }

func (l *queueLock) try() bool {
	if l.single {
		free := l.state == 0
		l.state = 1
		return free
	}
	return atomic.CompareAndSwapUint32(&l.state, 0, 1)
}

func (l *queueLock) Unlock() {
	memorder.StoreRelease(&l.state, 0)
	if atomic.LoadInt32(&l.waiting) != 0 {
		runtime.Gosched() // else a goroutine that locks in a loop would starve waiters
	}
}

// wait waits for a held lock, and takes it. With unlessBatch, it returns false if a batch
// holds the lock.
func (l *queueLock) wait(unlessBatch bool) bool {
	if l.single {
		panic("verbs: concurrent use of a queue made with SingleOwner")
	}
	patient, got := false, false
	spin.Until(&l.state, func(state uint32) bool {
		got = state == 0 && l.try()
		return got || unlessBatch && state == lockedByBatch
	}, func() {
		patient = true
		atomic.AddInt32(&l.waiting, 1)
	})
	if patient {
		atomic.AddInt32(&l.waiting, -1)
	}
	return got
}
