//go:build amd64 || arm64

package stops

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A Stops selects the system calls of a set's programs that stop.
type Stops struct {
	*tracee.Set
	inserts inserts
	of      map[*tracee.Process]*given

	Filtered  bool // processes have ibvtrace's filters
	Inherited int  // ibvtrace's own seccomp filters, which its command inherits
}

// inserts are the mechanisms that insert code into programs.
type inserts interface {
	Limited(p *tracee.Process)       // the process's filters have changed
	Inserts(p *tracee.Process) bool  // the process has inserted code
	InInsert(th *tracee.Thread) bool // the thread is in inserted code
}

// New returns a Stops for a set.
func New(s *tracee.Set, i inserts) *Stops {
	return &Stops{Set: s, inserts: i, of: make(map[*tracee.Process]*given)}
}

// A given records the filters that ibvtrace has added to a process.
type given struct {
	watched      map[int]watching // by descriptor
	watchedAbove int              // all descriptors from this one on; 0: none
	filters      int              // number of filters
}

func (t *Stops) given(p *tracee.Process) *given {
	g := t.of[p]
	if g == nil {
		g = &given{watched: make(map[int]watching), filters: 1}
		t.of[p] = g
	}
	return g
}

// Forked records that a process's child has inherited its filters.
func (t *Stops) Forked(parent, child *tracee.Process) {
	g := *t.given(parent)
	g.watched = maps.Clone(g.watched)
	t.of[child] = &g
}

// Gone forgets a process.
func (t *Stops) Gone(p *tracee.Process) { delete(t.of, p) }

// Opened makes operations on a file that a thread has opened stop. Until the thread's first
// command shows whether it sends commands by ioctl or by write, all its system calls stop.
func (t *Stops) Opened(th *tracee.Thread, fd int, f *tracee.File) {
	t.Watch(th, fd, f)
	if watches(f)&watchWrite == 0 {
		th.Deciding, th.Calls = f, 0
	}
}

// maxFilters bounds a process's filters for single descriptors: the kernel runs all of them
// at every system call.
const maxFilters = 24

// Watch makes operations on a descriptor stop. The thread must be at a syscall-exit stop.
func (t *Stops) Watch(th *tracee.Thread, fd int, f *tracee.File) {
	p, what := th.Proc, watches(f)
	g := t.given(p)
	if p.All || what&^g.watched[fd] == 0 || g.watchedAbove > 0 && fd >= g.watchedAbove {
		return
	}
	above := len(g.watched) >= maxFilters
	filter := fdFilter(uint32(fd), above, what)
	if above {
		filter = fdFilter(uint32(fd), true, watchClose|watchRead|watchWrite)
	}
	in, err := t.Inject(th)
	if err == nil {
		err = addFilter(in, filter)
		if err == ptrace.ErrDied {
			return
		}
		if err2 := in.Done(); err == nil {
			err = err2
		}
	}
	if err != nil {
		if err == unix.ESRCH {
			return
		}
		t.stopAtAll(p)
		return
	}
	g.filters++
	if above {
		g.watchedAbove = fd
	} else {
		g.watched[fd] |= what
	}
}

// stopAtAll makes a process stop at every system call, because it can install no more filters:
// it has dropped the privilege, or its own filters do not allow it.
func (t *Stops) stopAtAll(p *tracee.Process) {
	p.All = true
	for tid, th := range t.Threads {
		if th.Proc == p && th.Running {
			ptrace.Interrupt(tid)
		}
	}
}
