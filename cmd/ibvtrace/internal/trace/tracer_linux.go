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
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/goprograms"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/probes"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recording"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/stops"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A tracer follows programs, their threads and their children. It hands their stops to
// the mechanisms, of which each has a package.
type tracer struct {
	*tracee.Set
	opt     Options
	command int // the pid whose end is ours, 0: attached
	data    map[*tracee.Process]dataState
	sink    event.Sink
	sinkErr error // the first: after it nothing is shown

	calls      *calls.Decoder
	stops      *stops.Stops
	probes     *probes.Probes
	goPrograms *goprograms.Programs
	recordings *recording.Recordings

	mu      sync.Mutex // held but while waiting, for poll
	polling sync.Once
	over    bool

	leave   atomic.Bool // asked to let go
	leaving bool
	until   time.Time // then those that did not stop are left to the kernel, which lets go when this process ends
}

// newTracer returns one that traces nothing as yet.
func newTracer(o Options, sink event.Sink) *tracer {
	t := &tracer{Set: tracee.NewSet(), opt: o, data: make(map[*tracee.Process]dataState), sink: sink}
	t.stops = stops.New(t.Set, t)
	t.calls = calls.NewDecoder(t.Set, t.stops, t, o.Raw)
	t.probes = probes.New(t.Set)
	t.goPrograms = goprograms.New(t.Set)
	t.recordings = recording.New(t.Set, t.calls)
	return t
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
		t.Now = time.Now()
		t.recordings.Replay()
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return end, nil
		case err != nil:
			return end, os.NewSyscallError("wait4", err)
		}
		if ws.Stopped() {
			if err := t.Stopped(tid, ws); err != nil && err != unix.ESRCH && err != ptrace.ErrDied {
				return end, fmt.Errorf("thread %d, wait status %#x: %w", tid, uint32(ws), err)
			}
			continue
		}
		if ws.Exited() || ws.Signaled() {
			t.Ended(tid, ws)
			if tid == t.command {
				end = ws
			}
		}
	}
}

// wait returns the next stop or end of a thread.
func (t *tracer) wait() (int, unix.WaitStatus, error) {
	if len(t.Waited) > 0 {
		w := t.Waited[0]
		t.Waited = t.Waited[1:]
		return w.TID, w.Status, nil
	}
	t.mu.Unlock()
	defer t.mu.Lock()
	var ws unix.WaitStatus
	tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
	return tid, ws, err
}

// Thread returns the thread with the id, which may be one that is not known yet.
func (t *tracer) Thread(tid int) *tracee.Thread {
	if th := t.Threads[tid]; th != nil {
		return th
	}
	pid, parent, nested, filters := ptrace.ProcessOf(tid)
	p := t.Processes[pid]
	if p == nil {
		p = tracee.NewProcess(pid)
		p.Nested, p.All = nested, t.command == 0
		if from := t.Processes[parent]; from != nil {
			t.fork(from, p)
		}
		t.stops.CheckFilters(p, filters)
		t.Processes[pid] = p
	}
	p.Threads++
	th := &tracee.Thread{TID: tid, Proc: p}
	t.Threads[tid] = th
	return th
}

// fork makes a process a copy of its parent.
func (t *tracer) fork(parent, child *tracee.Process) {
	child.Inherit(parent)
	if state, ok := t.data[parent]; ok {
		t.data[child] = state
	}
	t.stops.Forked(parent, child)
	t.recordings.Forked(parent, child)
	t.probes.Forked(parent, child)
	t.goPrograms.Forked(parent, child)
}

// exec forgets of a process what the program that it begins has not.
func (t *tracer) exec(p *tracee.Process) {
	t.recordings.Leave(p)
	delete(t.data, p)
	t.probes.Gone(p)
	t.goPrograms.Gone(p)
	p.AfterExec()
	t.NoteRights(p)
}

// exit forgets a process.
func (t *tracer) exit(p *tracee.Process, ws unix.WaitStatus) {
	t.recordings.Gone(p)
	t.NoteExit(p, ws)
	p.Gone()
	t.forget(p)
}

// forget forgets a process that is gone or that is let go.
func (t *tracer) forget(p *tracee.Process) {
	delete(t.data, p)
	t.stops.Gone(p)
	t.probes.Gone(p)
	t.goPrograms.Gone(p)
	delete(t.Processes, p.PID)
}

// Ended forgets a thread. A call it was in never returned.
func (t *tracer) Ended(tid int, ws unix.WaitStatus) {
	th := t.Threads[tid]
	if th == nil {
		return
	}
	t.Abandon(th)
	t.recordings.ThreadGone(th)
	t.probes.ThreadGone(th)
	delete(t.Threads, tid)
	if th.Proc.Threads--; th.Proc.Threads == 0 {
		t.exit(th.Proc, ws)
	}
}

// show shows the calls that are done. No thread waits for it.
func (t *tracer) show() {
	for _, c := range t.Done {
		if t.sinkErr == nil {
			if c.Said == nil {
				c.Said = c.Event()
			}
			t.sinkErr = t.sink.Event(c.Said)
		}
	}
	clear(t.Done)
	t.Done = t.Done[:0]
}

// Stopped handles one stop and sets the thread going again.
func (t *tracer) Stopped(tid int, ws unix.WaitStatus) error {
	const syscallStop = unix.SIGTRAP | 0x80
	th := t.Thread(tid)
	th.Running = false
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
			return ptrace.Listen(tid)
		}
		th.KeepWhole()
		sig = 0 // a new thread, an interruption, or the end of a group-stop
	case unix.PTRACE_EVENT_EXEC:
		// All threads are gone, and the one that called exec is now known
		// by its process's id. The kernel reports the end of the others,
		// but not of the one whose id was taken.
		if former, err := unix.PtraceGetEventMsg(tid); err == nil && int(former) != tid {
			t.Abandon(th)
			if old := t.Threads[int(former)]; old != nil {
				t.probes.ThreadGone(old)
				delete(t.Threads, int(former))
				old.Proc.Threads--
			}
		}
		th.Comm = ""
		t.exec(th.Proc)
		sig = 0
	case unix.PTRACE_EVENT_EXIT:
		t.noteEmpty(th.Proc) // while its memory is there
		sig = 0
	default:
		// Fork, vfork, clone: the child is attached already.
		sig = 0
	}
	if t.leaving {
		th.Signal = sig
		return nil
	}
	return t.Resume(th, sig)
}

// poll handles what programs record that do not stop. It begins with the first that
// does.
func (t *tracer) poll() {
	t.polling.Do(func() {
		go func() {
			for wait := pollFirst; ; wait = min(2*wait, pollLast) {
				time.Sleep(wait)
				t.mu.Lock()
				if t.over {
					t.mu.Unlock()
					return
				}
				t.recordings.Replay()
				if len(t.Done) > 0 {
					wait = pollFirst / 2
					t.show()
				}
				t.mu.Unlock()
			}
		}()
	})
}

// The times between looks at what was recorded: the first while there is something, up
// to the last while there is nothing.
const (
	pollFirst = 10 * time.Millisecond
	pollLast  = 160 * time.Millisecond
)

// maxUndecided is how many calls a library makes at most, by far, between opening a
// device and its first command.
const maxUndecided = 256

// atSyscall handles the entry or the exit of a system call.
func (t *tracer) atSyscall(th *tracee.Thread) {
	info, err := ptrace.GetSyscallInfo(th.TID)
	if err != nil {
		return // gone
	}
	switch info.Op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY, unix.PTRACE_SYSCALL_INFO_SECCOMP:
		// A thread that stops at every call stops once more where a filter wants the call.
		if th.Entered {
			return
		}
		th.Entered = info.Op == unix.PTRACE_SYSCALL_INFO_ENTRY
		if th.Call == nil {
			th.Call = t.enter(th, info)
		}
		if th.Deciding != nil {
			if th.Calls++; th.Calls == maxUndecided {
				th.Deciding = nil
			}
		}
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		th.Entered = false
		if th.Call != nil {
			c := th.Call
			th.Call = nil
			t.Complete(th, c, info.Result())
		}
	}
}

// letGo lets go of each process once its threads have stopped, and reports whether
// none is left. It can't wait for all processes at once: a thread that called vfork
// does not stop before its child, another process, has gone on.
func (t *tracer) letGo() bool {
	if !t.leaving {
		t.leaving = true
		t.until = time.Now().Add(tracee.Patience)
		for tid, th := range t.Threads {
			if th.Running {
				ptrace.Interrupt(tid)
			}
		}
	}
	waiting := make(map[*tracee.Process]bool)
	if time.Now().Before(t.until) {
		for _, th := range t.Threads {
			if th.Running {
				waiting[th.Proc] = true
			}
		}
	}
	for _, p := range t.Processes {
		if !waiting[p] {
			t.endData(p)
			t.forget(p)
		}
	}
	for tid, th := range t.Threads {
		if !waiting[th.Proc] {
			t.Abandon(th)
			ptrace.Detach(tid, th.Signal)
			delete(t.Threads, tid)
		}
	}
	return len(t.Threads) == 0
}

// Options are what a thread is attached with.
func (t *tracer) Options() uintptr {
	o := uintptr(unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEVFORK)
	if t.opt.Data {
		o |= unix.PTRACE_O_TRACEEXIT // before the probes' counters go
	}
	return o
}
