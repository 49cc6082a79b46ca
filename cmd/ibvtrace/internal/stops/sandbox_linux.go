//go:build amd64 || arm64

package stops

import (
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A program may have seccomp filters of its own, which may kill it for a system call that
// ibvtrace injects. So ibvtrace injects only calls that they allow, and otherwise stops the
// program at every system call. Filters are read when they are installed, or on attaching,
// which requires CAP_SYS_ADMIN. A filter that can't be read is assumed to allow nothing.

// EnterSeccomp handles a program's installation of a filter or of strict mode, in all threads
// or in one.
func (t *Stops) EnterSeccomp(th *tracee.Thread, strict, all bool, addr uint64, wide bool) *tracee.Call {
	p := th.Proc
	f := new(seccomp.Program)
	if !strict {
		*f = seccomp.Read(th.TID, addr, wide)
	}
	p.Own = append(p.Own, f)
	// At the entry, since other threads have the filter before the exit stop.
	if *f != nil {
		t.inserts.Limited(p) // the kernel probably rejects a filter that can't be read
	}
	if all {
		t.leaveInserts(th)
		t.awaitRestarts(th)
	}
	return &tracee.Call{Silent: true, Finish: func(_ *tracee.Thread, c *tracee.Call) {
		if c.Errno == 0 {
			t.inserts.Limited(p)
			return
		}
		if i := slices.Index(p.Own, f); i >= 0 {
			p.Own = slices.Delete(p.Own, i, i+1)
		}
	}}
}

// ReadOwn reads the filters of a process that was attached to. It can read only those of
// stopped threads.
func (t *Stops) ReadOwn(p *tracee.Process) {
	p.Own = nil
	for tid, th := range t.Threads {
		if th.Proc != p {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
		if err != nil || ptrace.StatusNumber(string(status), "Seccomp:") == 0 {
			continue
		}
		filters, err := seccomp.Installed(tid)
		if err != nil {
			filters = []*seccomp.Program{new(seccomp.Program)}
		}
		for _, f := range filters {
			if !slices.ContainsFunc(p.Own, func(g *seccomp.Program) bool { return slices.Equal(*f, *g) }) {
				p.Own = append(p.Own, f)
			}
		}
	}
}

// CheckFilters compares the number of a new process's filters with the known ones. They
// differ if its parent is not known.
func (t *Stops) CheckFilters(p *tracee.Process, has int) {
	known := len(p.Own) + t.Inherited
	if t.Filtered {
		known += t.given(p).filters
	}
	if has > known {
		p.Own = append(p.Own, new(seccomp.Program))
		p.All = true
	}
}

// leaveInserts lets the other threads of a process leave inserted code.
// It gives up on threads that stay there for long, in a verb.
func (t *Stops) leaveInserts(th *tracee.Thread) {
	p := th.Proc
	if !t.inserts.Inserts(p) {
		return
	}
	for end := time.Now().Add(tracee.Patience / 10); time.Now().Before(end) && t.StopOthers(th); {
		inside := false
		t.Waited = slices.DeleteFunc(t.Waited, func(w tracee.Waited) bool {
			other := t.Threads[w.TID]
			interruption := int(w.Status)>>16 == unix.PTRACE_EVENT_STOP && w.Status.StopSignal() == unix.SIGTRAP
			if other == nil || other.Proc != p || !interruption || !t.inserts.InInsert(other) {
				return false
			}
			inside = true
			t.Resume(other, 0) // fails only if the thread has ended
			return true
		})
		if !inside {
			return
		}
		time.Sleep(200 * time.Microsecond) // so that the threads make progress
	}
}

// awaitRestarts waits until the other threads of a process have resumed the system calls that
// stops interrupted. Otherwise a filter for all threads might forbid a pending
// restart_syscall.
func (t *Stops) awaitRestarts(th *tracee.Thread) {
	for end := time.Now().Add(tracee.Patience / 10); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		runs := false
		for tid, other := range t.Threads {
			if other.Proc == th.Proc && other.Running && other.Interrupted != 0 {
				now, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
				runs = runs || err == nil && string(now) == "running\n"
			}
		}
		if !runs {
			return
		}
	}
}
