//go:build amd64 || arm64

package stops

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A Stops chooses which system calls of the programs of a set stop.
type Stops struct {
	*tracee.Set
	inserts inserts
	of      map[*tracee.Process]*given

	Command   bool // a program was started, else processes were attached to
	Inherited int  // seccomp filters of ibvtrace, which its command has too
}

// inserts are what else is put into programs.
type inserts interface {
	Limiting(p *tracee.Process)     // it is about to get a filter of its own
	Limited(p *tracee.Process)      // it has one, or one less than it looked to get
	Inserts(p *tracee.Process) bool // something was put into it
	InInsert(th *tracee.Thread) bool
}

// New returns the stops of a set's programs, to which the inserts are put.
func New(s *tracee.Set, i inserts) *Stops {
	return &Stops{Set: s, inserts: i, of: make(map[*tracee.Process]*given)}
}

// A given is what a process has filters for: descriptors, and all from one on.
type given struct {
	watched      map[int]watching
	watchedAbove int // 0: none
	filters      int // that it has from ibvtrace
}

func (t *Stops) given(p *tracee.Process) *given {
	g := t.of[p]
	if g == nil {
		g = &given{watched: make(map[int]watching), filters: 1}
		t.of[p] = g
	}
	return g
}

// Forked has a process's child have its parent's filters.
func (t *Stops) Forked(parent, child *tracee.Process) {
	g := *t.given(parent)
	g.watched = maps.Clone(g.watched)
	t.of[child] = &g
}

// Gone forgets a process.
func (t *Stops) Gone(p *tracee.Process) { delete(t.of, p) }

// Opened has stop what is done to a file that a thread has opened. Until the thread has
// decided how it gives commands to it, all its calls stop.
func (t *Stops) Opened(th *tracee.Thread, fd int, f *tracee.File) {
	t.Watch(th, fd, f)
	if watches(f)&watchWrite == 0 {
		th.Deciding, th.Calls = f, 0
	}
}

// maxFilters bounds how many filters a process gets for single descriptors: the
// kernel runs each at every system call.
const maxFilters = 24

// Watch makes what is done to a descriptor stop. The thread is at the exit of a
// system call.
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

// stopAtAll has a process stop at every system call, which is slower, because it
// takes no more filters: it gave up the right to, or has filters of its own that do not
// allow it.
func (t *Stops) stopAtAll(p *tracee.Process) {
	p.All = true
	for tid, th := range t.Threads {
		if th.Proc == p && th.Running {
			ptrace.Interrupt(tid)
		}
	}
}
