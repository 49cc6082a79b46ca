//go:build !amd64 || race

package verbs

import "sync/atomic"

// free ends the section that the lock guards.
func (l *queueLock) free() {
	atomic.StoreUint32(&l.held, 0)
	if l.waiting.Load() != 0 {
		l.yield()
	}
}
