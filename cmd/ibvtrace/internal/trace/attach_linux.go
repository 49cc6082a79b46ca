//go:build amd64 || arm64

package trace

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// attach begins to trace programs that run, all their threads included. They stop
// at every system call: a filter of system calls could not be taken back, and
// without a tracer it would fail what it chose.
func (t *tracer) attach(pids []int) error {
	for _, pid := range pids {
		if err := t.attachProcess(pid); err != nil {
			// What is attached already runs on when this process ends.
			return fmt.Errorf("attach to %d: %w", pid, err)
		}
	}
	return nil
}

func (t *tracer) attachProcess(pid int) error {
	tids, err := threadsOf(pid)
	if err != nil {
		return fmt.Errorf("no such process: %w", err)
	}
	var failed error
	// Until no more appear: threads that begin meanwhile are attached already
	// if their parent is.
	for again := true; again; {
		again = false
		for _, tid := range tids {
			if t.threads[tid] != nil {
				continue
			}
			if err := seize(tid, t.options()); err != nil {
				// Of a thread that a traced one made, it says the same:
				// its first stop makes it known.
				if err != unix.ESRCH && !tracedByUs(tid) {
					failed = err
				}
				continue
			}
			t.thread(tid).running = true
			interrupt(tid)
			again = true
		}
		if tids, err = threadsOf(pid); err != nil {
			break
		}
	}
	if t.processes[pid] == nil {
		if failed == nil {
			failed = unix.ESRCH
		}
		if failed == unix.EPERM {
			return fmt.Errorf("%w: it belongs to another user, gained rights, is traced already, "+
				"or /proc/sys/kernel/yama/ptrace_scope forbids it", failed)
		}
		return failed
	}
	p := t.processes[pid]
	p.all = true
	t.openBefore(p)
	return t.allStopped(p)
}

// allStopped waits until the threads of a process have stopped for the first time,
// deals with its tables while none of them uses these, and sets them going.
func (t *tracer) allStopped(p *process) error {
	first := make(map[int]unix.WaitStatus)
	now := time.Now()
	for end := now.Add(patience); now.Before(end); now = time.Now() {
		running := false
		for tid, th := range t.threads {
			if th.proc != p || !th.running {
				continue
			}
			var ws unix.WaitStatus
			switch got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil); {
			case err != nil || got == 0:
				// One that waits for its child after vfork does not
				// stop before that has ended.
				running = running || err == nil
			case ws.Stopped():
				first[tid] = ws
				th.running = false
			default:
				t.ended(tid, ws)
			}
		}
		if !running {
			break
		}
		time.Sleep(time.Millisecond)
	}
	t.readOwn(p)
	for tid, ws := range first {
		// At a signal's stop its registers are not to be changed.
		if int(ws)>>16 == unix.PTRACE_EVENT_STOP && ws.StopSignal() == unix.SIGTRAP {
			t.attachData(t.threads[tid])
			break
		}
	}
	t.now = now
	for tid, ws := range first {
		if t.threads[tid] == nil {
			continue // it died meanwhile
		}
		if err := t.stopped(tid, ws); err != nil && err != unix.ESRCH && err != errDied {
			return err
		}
	}
	return nil
}

// openBefore notes the RDMA files that a process had before, and what they hold.
func (t *tracer) openBefore(p *process) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
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
	th := &thread{tid: p.pid, proc: p}
	known := make(map[*file]bool)
	for _, fd := range fds {
		f := t.file(th, fd)
		if f == nil {
			continue
		}
		for other, g := range p.fds { // a duplicate?
			if other != fd && g.kind == f.kind && known[g] && sameFile(p.pid, fd, other) {
				p.setFD(fd, g)
				f = g
			}
		}
		if known[f] {
			continue
		}
		known[f] = true
		var made []objectKey
		why := "was open before"
		if f.kind == fileUverbs {
			made = f.existing(p.pid, fd)
			why += ", with " + plural(uint64(len(made)), "object")
		}
		t.noteFile(p, fd, f, made, why)
	}
	// The uverbs file has a lower number mostly, but not always.
	for _, f := range p.fds {
		if f.kind == fileEvents && f.parent == nil {
			f.parent = p.onlyUverbs()
		}
	}
}

// sameFile reports whether two descriptors of a process are one open file.
func sameFile(pid, a, b int) bool {
	const kcmpFile = 0
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(pid), kcmpFile, uintptr(a), uintptr(b), 0)
	return errno == 0 && r == 0
}

// threadsOf lists the threads of a process.
func threadsOf(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out, nil
}

// tracedByUs reports whether this thread of ibvtrace traces a thread.
func tracedByUs(tid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return true // it is gone, which is no failure
	}
	return tracerPid(string(status)) == unix.Gettid()
}
