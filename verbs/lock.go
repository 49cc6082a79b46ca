package verbs

import "sync"

// A queueLock serialises the users of one queue. With single set, there must
// be one at a time: then it only watches, without atomics, for a second one.
type queueLock struct {
	mu     sync.Mutex
	single bool
	inside bool
}

func (l *queueLock) Lock() {
	if !l.single {
		l.mu.Lock()
		return
	}
	if l.inside {
		panic("verbs: concurrent use of a queue made with SingleOwner")
	}
	l.inside = true
}

func (l *queueLock) Unlock() {
	if !l.single {
		l.mu.Unlock()
		return
	}
	l.inside = false
}
