//go:build !race

package verbs

// free ends the section that the lock guards. On this architecture an ordinary
// store comes after all memory accesses before it, for the processor; for the
// compiler, a call that is not inlined is the border.
//
//go:noinline
func (l *queueLock) free() {
	l.held = 0
	if l.waiting.Load() != 0 {
		l.yield()
	}
}
