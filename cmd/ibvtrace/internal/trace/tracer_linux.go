//go:build amd64 || arm64

package trace

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/ioctl"
)

// A tracer follows programs, their threads and their children.
type tracer struct {
	opt       Options
	command   int             // the pid whose end is ours, 0: attached
	threads   map[int]*thread // by tid
	processes map[int]*process
	files     int // that have been seen
	snapshot  snapshot
	inherited int       // seccomp filters of ibvtrace, which its command has too
	now       time.Time // of the last stop: to ask for it takes long on some machines
	done      []*call   // that are not shown yet
	sink      event.Sink
	sinkErr   error // the first: after it nothing is shown

	mu         sync.Mutex // held but while waiting, for poll
	recordings []*recording
	polling    sync.Once
	over       bool
	waited     []waited // stops to be handled

	leave   atomic.Bool // asked to let go
	leaving bool
	until   time.Time // then those that did not stop are left to the kernel, which lets go when this process ends
}

// A waited is what wait4 has said of a thread.
type waited struct {
	tid int
	ws  unix.WaitStatus
}

// A thread is a traced thread.
type thread struct {
	tid     int
	proc    *process
	comm    string // its name, "": to be read
	running bool
	call    *call       // the one it is in, or nil
	entered bool        // it stopped at the entry of a system call, and will at its exit
	signal  unix.Signal // on its way to a thread that is being let go
	posts   postState

	interrupted uint64 // the system call that a stop interrupted, which goes on by another

	// replayed reads its memory as it was when it did what is being replayed, nil:
	// nothing is.
	replayed ioctl.Memory

	// deciding: it has opened a file of which it is not known yet whether it
	// gives it commands by write(2), and so stops at every call until it has
	// given one, or for so many calls.
	deciding *file
	calls    int
}

// run waits for stops until no traced thread is left, and returns how the
// command ended.
//
// A ptrace request fails with ESRCH if SIGKILL was faster. That is never an
// error here: the thread's end is on its way to wait4.
func (t *tracer) run() (unix.WaitStatus, error) {
	t.mu.Lock()
	defer func() {
		t.show()
		t.over = true
		t.mu.Unlock()
	}()
	var end unix.WaitStatus
	for {
		t.show()
		if t.leave.Load() && t.letGo() {
			return end, nil
		}
		tid, ws, err := t.wait()
		t.now = time.Now()
		t.replay()
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return end, nil
		case err != nil:
			return end, os.NewSyscallError("wait4", err)
		}
		if ws.Stopped() {
			if err := t.stopped(tid, ws); err != nil && err != unix.ESRCH && err != errDied {
				return end, fmt.Errorf("thread %d, wait status %#x: %w", tid, uint32(ws), err)
			}
			continue
		}
		if ws.Exited() || ws.Signaled() {
			t.ended(tid, ws)
			if tid == t.command {
				end = ws
			}
		}
	}
}

// wait returns the next stop or end of a thread.
func (t *tracer) wait() (int, unix.WaitStatus, error) {
	if len(t.waited) > 0 {
		w := t.waited[0]
		t.waited = t.waited[1:]
		return w.tid, w.ws, nil
	}
	t.mu.Unlock()
	defer t.mu.Lock()
	var ws unix.WaitStatus
	tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
	return tid, ws, err
}

// name returns the name that the thread goes by. A thread that changes its name stops
// for that.
func (th *thread) name() string {
	if th.comm == "" || th.proc.renames {
		th.comm = threadName(th.tid)
	}
	return th.comm
}

// thread returns the thread with the id, which may be one that is not known yet.
func (t *tracer) thread(tid int) *thread {
	if th := t.threads[tid]; th != nil {
		return th
	}
	pid, parent, nested, filters := processOf(tid)
	p := t.processes[pid]
	if p == nil {
		p = &process{pid: pid, fds: make(map[int]*file), watched: make(map[int]watching), all: t.command == 0, given: 1}
		p.nested = nested
		if from := t.processes[parent]; from != nil {
			p.inherit(from)
		}
		t.checkFilters(p, filters)
		t.processes[pid] = p
	}
	p.threads++
	th := &thread{tid: tid, proc: p}
	t.threads[tid] = th
	return th
}

// ended forgets a thread. A call it was in never returned.
func (t *tracer) ended(tid int, ws unix.WaitStatus) {
	th := t.threads[tid]
	if th == nil {
		return
	}
	t.abandon(th)
	if r := th.proc.recording; r != nil {
		t.replayUnfinished(r, func(gone int) bool { return gone == tid })
	}
	delete(t.threads, tid)
	if th.proc.threads--; th.proc.threads == 0 {
		t.leaveRecording(th.proc)
		t.noteExit(th.proc, ws)
		th.proc.gone()
		delete(t.processes, th.proc.pid)
	}
}

// abandon prints a call that will not be seen to return.
func (t *tracer) abandon(th *thread) {
	if c := th.call; c != nil {
		th.call = nil
		if !c.silent {
			t.emit(c)
		}
	}
}

// emit has a call shown once the thread that made it runs again.
func (t *tracer) emit(c *call) { t.done = append(t.done, c) }

// show shows the calls that are done. No thread waits for it.
func (t *tracer) show() {
	for _, c := range t.done {
		if t.sinkErr == nil {
			if c.said == nil {
				c.said = c.event()
			}
			t.sinkErr = t.sink.Event(c.said)
		}
	}
	clear(t.done)
	t.done = t.done[:0]
}

// stopped handles one stop and sets the thread going again.
func (t *tracer) stopped(tid int, ws unix.WaitStatus) error {
	const syscallStop = unix.SIGTRAP | 0x80
	th := t.thread(tid)
	th.running = false
	sig := ws.StopSignal()

	switch event := int(ws) >> 16; event {
	case 0:
		if sig == syscallStop {
			t.atSyscall(th)
			sig = 0
		}
		// Else a signal on its way to the thread: pass it on.
	case unix.PTRACE_EVENT_SECCOMP:
		t.atSyscall(th)
		sig = 0
	case unix.PTRACE_EVENT_STOP:
		switch sig {
		case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
			if t.leaving {
				break
			}
			return listen(tid)
		}
		th.keepWhole()
		sig = 0 // a new thread, an interruption, or the end of a group-stop
	case unix.PTRACE_EVENT_EXEC:
		// All threads are gone, and the one that called exec is now known
		// by its process's id. The kernel reports the end of the others,
		// but not of the one whose id was taken.
		if former, err := unix.PtraceGetEventMsg(tid); err == nil && int(former) != tid {
			t.abandon(th)
			if old := t.threads[int(former)]; old != nil {
				delete(t.threads, int(former))
				old.proc.threads--
			}
		}
		t.leaveRecording(th.proc)
		th.comm = ""
		th.proc.afterExec()
		t.noteRights(th.proc)
		sig = 0
	case unix.PTRACE_EVENT_EXIT:
		if th.proc.data != nil {
			t.noteEmpty(th.proc) // while its memory is there
		}
		sig = 0
	default:
		// Fork, vfork, clone: the child is attached already.
		sig = 0
	}
	if t.leaving {
		th.signal = sig
		return nil
	}
	return t.resume(th, sig)
}

// resume sets a thread going to the next stop that matters.
func (t *tracer) resume(th *thread, sig unix.Signal) error {
	th.running = true
	if th.call != nil {
		th.call.resumed = time.Now()
	}
	if th.call != nil || th.proc.all || th.deciding != nil || th.entered {
		return unix.PtraceSyscall(th.tid, int(sig))
	}
	return unix.PtraceCont(th.tid, int(sig))
}

// maxUndecided is how many calls a library makes at most, by far, between opening a
// device and its first command.
const maxUndecided = 256

// atSyscall handles the entry or the exit of a system call.
func (t *tracer) atSyscall(th *thread) {
	info, err := getSyscallInfo(th.tid)
	if err != nil {
		return // gone
	}
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY, unix.PTRACE_SYSCALL_INFO_SECCOMP:
		// A thread that stops at every call stops once more where a filter wants the call.
		if th.entered {
			return
		}
		th.entered = info.op == unix.PTRACE_SYSCALL_INFO_ENTRY
		if th.call == nil {
			th.call = t.enter(th, info)
		}
		if th.deciding != nil {
			if th.calls++; th.calls == maxUndecided {
				th.deciding = nil
			}
		}
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		th.entered = false
		if th.call != nil {
			t.exit(th, info.result())
		}
	}
}

// letGo lets go of each process once its threads have stopped, and reports whether
// none is left. It can't wait for all processes at once: a thread that called vfork
// does not stop before its child, another process, has gone on.
func (t *tracer) letGo() bool {
	if !t.leaving {
		t.leaving = true
		t.until = time.Now().Add(patience)
		for tid, th := range t.threads {
			if th.running {
				interrupt(tid)
			}
		}
	}
	waiting := make(map[*process]bool)
	if time.Now().Before(t.until) {
		for _, th := range t.threads {
			if th.running {
				waiting[th.proc] = true
			}
		}
	}
	for _, p := range t.processes {
		if !waiting[p] {
			t.endData(p)
			delete(t.processes, p.pid)
		}
	}
	for tid, th := range t.threads {
		if !waiting[th.proc] {
			t.abandon(th)
			detach(tid, th.signal)
			delete(t.threads, tid)
		}
	}
	return len(t.threads) == 0
}
