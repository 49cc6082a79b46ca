//go:build amd64 || arm64

package attach

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// An Attacher attaches to processes.
type Attacher struct {
	*tracee.Set
	host host
}

// New returns an Attacher that adds processes to a set.
func New(s *tracee.Set, h host) *Attacher { return &Attacher{s, h} }

// A host is the tracer's loop.
type host interface {
	Options() uintptr                                      // ptrace options
	Thread(tid int, parent *tracee.Process) *tracee.Thread // adds a thread; the parent of its process may be nil

	// Attached is called when all threads of a process that can stop have stopped. at is a
	// thread whose registers may be changed, or nil.
	Attached(p *tracee.Process, at *tracee.Thread)
	Stopped(tid int, ws unix.WaitStatus) error
	Ended(tid int, ws unix.WaitStatus)
}

// Attach attaches to a running process with all its threads. They stop at every system call: a seccomp
// filter could not be removed, and without a tracer it would make the selected system calls fail.
// The error is ESRCH if there is no such process.
func (t *Attacher) Attach(pid int) error {
	tids, err := ptrace.ThreadsOf(pid)
	if err != nil {
		return unix.ESRCH
	}
	var failed error
	// Repeat until there are no new threads. The kernel attaches new threads of traced
	// ones.
	for again := true; again; {
		again = false
		for _, tid := range tids {
			if t.Threads[tid] != nil {
				continue
			}
			if err := ptrace.Seize(tid, t.host.Options()); err != nil {
				// A thread that a traced one created gives the same error. Its
				// first stop will add it.
				if by, ended := ptrace.TracerOf(tid); err != unix.ESRCH && ended == nil && by != unix.Gettid() {
					failed = err
				}
				continue
			}
			t.host.Thread(tid, nil).Running = true
			ptrace.Interrupt(tid)
			again = true
		}
		if tids, err = ptrace.ThreadsOf(pid); err != nil {
			break
		}
	}
	if t.Processes[pid] == nil {
		if failed == nil {
			failed = unix.ESRCH
		}
		if failed == unix.EPERM {
			return fmt.Errorf("%w: it belongs to another user, has gained privileges, is already being traced, "+
				"or /proc/sys/kernel/yama/ptrace_scope forbids it", failed)
		}
		return failed
	}
	p := t.Processes[pid]
	p.All = true
	t.OpenBefore(p)
	return t.allStopped(p)
}

// allStopped waits for the first stop of a process's threads, calls host.Attached while none
// of them runs, and resumes them.
func (t *Attacher) allStopped(p *tracee.Process) error {
	first := make(map[int]unix.WaitStatus)
	now := time.Now()
	for end := now.Add(tracee.Patience); now.Before(end); now = time.Now() {
		running := false
		for tid, th := range t.Threads {
			if th.Proc != p || !th.Running {
				continue
			}
			var ws unix.WaitStatus
			switch got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil); {
			case err != nil || got == 0:
				// A thread in vfork stops only after its child has ended
				// or called exec.
				running = running || err == nil
			case ws.Stopped():
				first[tid] = ws
				th.Running = false
			default:
				t.host.Ended(tid, ws)
			}
		}
		if !running {
			break
		}
		time.Sleep(time.Millisecond)
	}
	var at *tracee.Thread
	for tid, ws := range first {
		// At a signal-delivery-stop the registers must not be changed.
		if int(ws)>>16 == unix.PTRACE_EVENT_STOP && ws.StopSignal() == unix.SIGTRAP {
			at = t.Threads[tid]
			break
		}
	}
	t.host.Attached(p, at)
	t.Now = now
	for tid, ws := range first {
		if t.Threads[tid] == nil {
			continue // the thread has ended
		}
		if err := t.host.Stopped(tid, ws); err != nil && err != unix.ESRCH && err != ptrace.ErrDied {
			return err
		}
	}
	return nil
}

// OpenBefore records the RDMA files that a process has open, and their objects.
func (t *Attacher) OpenBefore(p *tracee.Process) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	if err != nil {
		return
	}
	var fds []int
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	th := &tracee.Thread{TID: p.PID, Proc: p}
	known := make(map[*tracee.File]bool)
	for _, fd := range fds {
		f := t.File(th, fd)
		if f == nil || known[f] {
			continue
		}
		known[f] = true
		var made []tracee.ObjectKey
		why := "was open before"
		if f.Kind == tracee.FileUverbs {
			var err error
			if made, err = existing(f, p.PID, fd); err != nil {
				why += ", with objects that can't be listed: " + err.Error()
			} else {
				why += ", with " + tracee.Plural(uint64(len(made)), "object")
			}
		}
		t.NoteFile(p, fd, f, made, why)
	}
	// The uverbs file usually, but not always, has a lower descriptor than its event files.
	for _, f := range p.FDs {
		if f.Kind == tracee.FileEvents && f.Parent == nil {
			f.Parent = p.OnlyUverbs()
		}
	}
}
