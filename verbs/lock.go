package verbs

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/release"
	"github.com/goverbs/goverbs/internal/spin"
)

// A queueLock serialises the users of one queue. With single set, there must
// be one at a time: then it only watches, without atomics, for a second one.
//
// It is no sync.Mutex, since that is unlocked by a read-modify-write, for which
// amd64 waits until a doorbell has left the processor: longer than all the rest
// of a post. A lock that a store frees can't tell whether somebody waits, so
// those who wait look again and again, as with the spin locks of rdma-core. What
// is done under it takes nanoseconds, but for verbs that change the queue.
// Waiting counts those who have looked for so long that they let others run.
type queueLock struct {
	held    uint32 // 0, 1, or heldByBatch
	single  bool
	waiting int32
}

// heldByBatch is queueLock.held while a SendBuilder is between StartSends and its
// end, which may be long, or never come.
const heldByBatch = 2

func (l *queueLock) Lock() {
	if !l.try() {
		l.wait(false)
	}
}

// lockForBatch is Lock for a SendBuilder.
func (l *queueLock) lockForBatch() {
	switch {
	case l.single && l.held == 0:
		l.held = heldByBatch
	case !l.single && atomic.CompareAndSwapUint32(&l.held, 0, heldByBatch):
	default:
		l.wait(false)
		atomic.StoreUint32(&l.held, heldByBatch)
	}
}

// lockUnlessBatch is Lock, but gives up where a batch is being built.
func (l *queueLock) lockUnlessBatch() bool {
	return !l.batching() && (l.try() || l.wait(true))
}

// batching tells whether a batch is being built.
func (l *queueLock) batching() bool { return atomic.LoadUint32(&l.held) == heldByBatch }

func (l *queueLock) try() bool {
	if l.single {
		free := l.held == 0
		l.held = 1
		return free
	}
	return atomic.CompareAndSwapUint32(&l.held, 0, 1)
}

func (l *queueLock) Unlock() {
	release.Store(&l.held, 0)
	if atomic.LoadInt32(&l.waiting) != 0 {
		runtime.Gosched() // or those who lock again in a loop would keep others out
	}
}

// wait is Lock when another has it, which may give up where that is a batch.
func (l *queueLock) wait(unlessBatch bool) bool {
	if l.single {
		panic("verbs: concurrent use of a queue made with SingleOwner")
	}
	patient, got := false, false
	spin.Until(&l.held, func(held uint32) bool {
		got = held == 0 && l.try()
		return got || unlessBatch && held == heldByBatch
	}, func() {
		patient = true
		atomic.AddInt32(&l.waiting, 1)
	})
	if patient {
		atomic.AddInt32(&l.waiting, -1)
	}
	return got
}
