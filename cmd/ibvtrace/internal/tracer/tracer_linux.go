//go:build amd64 || arm64

package tracer

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/goprograms"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/inject"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/probes"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/stops"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A tracer traces programs with their threads and children. It passes their stops to the
// mechanisms.
type tracer struct {
	*tracee.Set
	opt     Options
	tid     int // the thread that traces
	command int // the command's PID; 0 if the tracer attached to processes
	data    map[*tracee.Process]dataState
	sink    event.Sink
	sinkErr error // the sink's first error, after which nothing is shown
	passing bool  // nothing is decoded any more, see Set.Guard

	calls      *calls.Decoder
	stops      *stops.Stops
	probes     *probes.Probes
	goPrograms *goprograms.Programs
	injector   *injector

	held   map[int]unix.WaitStatus // the first stops of threads that their parents have not reported yet
	orphan bool                    // a thread has ended, which may have been the parent of a held one

	leave   atomic.Bool // a signal requests the end
	leaving bool        // processes are being detached
	until   time.Time   // when the end stops waiting for threads; the kernel detaches or kills the rest when this process ends
}

// newTracer returns a tracer that traces nothing yet.
func newTracer(o Options, sink event.Sink) *tracer {
	t := &tracer{Set: tracee.NewSet(), opt: o, data: make(map[*tracee.Process]dataState), sink: sink, held: make(map[int]unix.WaitStatus)}
	t.stops = stops.New(t.Set, t)
	t.calls = calls.NewDecoder(t.Set, t.stops, t, o.Raw)
	t.probes = probes.New(t.Set)
	t.goPrograms = goprograms.New(t.Set)
	t.injector = newInjector(o.Inject)
	if inject.Polls(o.Inject) {
		t.Completed = t.injectCompletions
	}
	return t
}

// run handles stops until no traced thread is left, and returns the command's wait status.
//
// A ptrace request fails with ESRCH if the thread has been killed in the meantime. That is
// no error here: wait4 will report the thread's end.
func (t *tracer) run() (unix.WaitStatus, error) {
	defer t.show()
	var end unix.WaitStatus
	for {
		t.show()
		t.resumeDue()
		if t.leave.Load() && len(t.Waited) == 0 && t.endAll() {
			return end, nil
		}
		tid, ws, err := t.wait()
		t.Now = time.Now()
		if t.Broken() && !t.passing {
			t.pass()
		}
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && tid == 0:
			t.release()
			continue
		case err == unix.ECHILD:
			return end, nil
		case err != nil:
			return end, os.NewSyscallError("wait4", err)
		}
		if ws.Stopped() {
			if t.Threads[tid] == nil {
				if int(ws)>>16 == unix.PTRACE_EVENT_STOP {
					t.held[tid] = ws
					continue
				}
				t.Thread(tid, nil) // its first thread had ended, and this one has called exec
			}
			bug := t.Guard(func() { err = t.Stopped(tid, ws) })
			if th := t.Threads[tid]; bug != nil && th != nil && !t.leaving {
				err = t.Resume(th, 0)
			}
			if err != nil && err != unix.ESRCH && err != ptrace.ErrDied {
				return end, fmt.Errorf("thread %d, wait status %#x: %w", tid, uint32(ws), err)
			}
			continue
		}
		if ws.Exited() || ws.Signaled() {
			t.Guard(func() { t.Ended(tid, ws) })
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
	options := unix.WALL
	if t.orphan && len(t.held) > 0 {
		options |= unix.WNOHANG
	}
	var ws unix.WaitStatus
	tid, err := unix.Wait4(-1, &ws, options, nil)
	return tid, ws, err
}

// A thread that forks stops, and reports its child's ID. The child does not report its parent:
// /proc names another process after CLONE_PARENT, and when the parent has ended. So the first
// stop of a child is held until the parent's report. If the parent is killed, there is no
// report.

// born adds the child that a thread reports, and handles its first stop if that was held.
func (t *tracer) born(parent *tracee.Thread) error {
	msg, err := unix.PtraceGetEventMsg(parent.TID)
	if err != nil {
		return err
	}
	child := int(msg)
	if by, err := ptrace.TracerOf(child); err != nil || by != unix.Gettid() {
		return nil // its end was reported before
	}
	t.Thread(child, parent.Proc).Running = true
	if ws, ok := t.held[child]; ok {
		delete(t.held, child)
		return t.Stopped(child, ws)
	}
	return nil
}

// release handles the stops that are held, of threads whose parents have ended.
func (t *tracer) release() {
	t.orphan = false
	for tid, ws := range t.held {
		t.Thread(tid, nil)
		t.Stopped(tid, ws) // fails only if the thread has ended
	}
	clear(t.held)
}

// Thread returns the thread with an ID, and adds it if it is new. The process, if it is new too,
// inherits from its parent, which is nil if it is not known.
func (t *tracer) Thread(tid int, parent *tracee.Process) *tracee.Thread {
	if th := t.Threads[tid]; th != nil {
		return th
	}
	pid, nested, filters := ptrace.ProcessOf(tid)
	p := t.Processes[pid]
	if p == nil {
		p = tracee.NewProcess(pid)
		p.Nested, p.All = nested, !t.stops.Filtered
		if parent != nil {
			t.fork(parent, p)
		}
		t.stops.CheckFilters(p, filters)
		t.Processes[pid] = p
	}
	p.Threads++
	th := &tracee.Thread{TID: tid, Proc: p}
	t.Threads[tid] = th
	return th
}

// fork copies the state of a process to its child.
func (t *tracer) fork(parent, child *tracee.Process) {
	child.Inherit(parent)
	if state, ok := t.data[parent]; ok {
		t.data[child] = state
	}
	t.stops.Forked(parent, child)
	t.probes.Forked(parent, child)
	t.goPrograms.Forked(parent, child)
}

// exec drops the state of a process that ends with an exec.
func (t *tracer) exec(p *tracee.Process) {
	delete(t.data, p)
	t.probes.Gone(p)
	t.goPrograms.Gone(p)
	p.AfterExec()
	t.NoteRights(p)
}

// exit notes a process's end and forgets the process.
func (t *tracer) exit(p *tracee.Process, ws unix.WaitStatus) {
	t.NoteExit(p, ws)
	p.Gone()
	t.forget(p)
}

// forget forgets a process that has ended or is being detached.
func (t *tracer) forget(p *tracee.Process) {
	delete(t.data, p)
	t.stops.Gone(p)
	t.probes.Gone(p)
	t.goPrograms.Gone(p)
	delete(t.Processes, p.PID)
}

// Ended forgets a thread that has ended. The call that it was in never returns.
func (t *tracer) Ended(tid int, ws unix.WaitStatus) {
	t.orphan = true
	delete(t.held, tid)
	th := t.Threads[tid]
	if th == nil {
		return
	}
	t.Abandon(th)
	t.probes.ThreadGone(th)
	t.injector.forget(th)
	delete(t.Threads, tid)
	if th.Proc.Threads--; th.Proc.Threads == 0 {
		t.exit(th.Proc, ws)
	}
}

// show passes finished calls to the sink. Threads run meanwhile.
func (t *tracer) show() {
	if t.sinkErr != nil {
		t.Done = nil
		return
	}
	t.sinkErr = t.Show(t.sink)
}

// pass ends reports of programs that would not be shown.
func (t *tracer) pass() {
	t.passing = true
	for _, p := range t.Processes {
		t.Guard(func() { t.endData(p) })
	}
}

// Stopped handles a stop of a known thread and resumes it.
func (t *tracer) Stopped(tid int, ws unix.WaitStatus) error {
	const syscallStop = unix.SIGTRAP | 0x80
	th := t.Threads[tid]
	th.Running = false
	sig := ws.StopSignal()

	switch event := int(ws) >> 16; event {
	case 0:
		if sig == syscallStop {
			t.atSyscall(th)
			sig = 0
		}
		// Otherwise a signal-delivery-stop: deliver the signal.
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
		th.RestartFromBeginning()
		sig = 0 // a new thread, PTRACE_INTERRUPT, or the end of a group-stop
	case unix.PTRACE_EVENT_EXEC:
		// All other threads have ended, and the thread that called exec now has the
		// process's ID. The kernel reports the end of the others, except of the one
		// whose ID was taken.
		if former, err := unix.PtraceGetEventMsg(tid); err == nil && int(former) != tid {
			t.Abandon(th)
			if old := t.Threads[int(former)]; old != nil {
				t.probes.ThreadGone(old)
				t.injector.forget(old)
				delete(t.Threads, int(former))
				old.Proc.Threads--
			}
		}
		t.orphan = true
		th.Comm = ""
		t.exec(th.Proc)
		sig = 0
	case unix.PTRACE_EVENT_EXIT:
		t.noteEmpty(th.Proc) // while its memory exists
		sig = 0
	default:
		// Fork, vfork or clone: the kernel has attached the child.
		if err := t.born(th); err != nil && err != unix.ESRCH && err != ptrace.ErrDied {
			return err
		}
		sig = 0
	}
	if t.leaving {
		th.Signal = sig
		return nil
	}
	if t.injector.delayed[th] != nil {
		return nil // see resumeDue
	}
	return t.Resume(th, sig)
}

// maxUndecided is far more than the system calls that a library makes between opening a
// device and its first command.
const maxUndecided = 256

// atSyscall handles the entry or the exit of a system call.
func (t *tracer) atSyscall(th *tracee.Thread) {
	info, err := ptrace.GetSyscallInfo(th.TID)
	if err != nil {
		return // the thread has been killed
	}
	switch info.Op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY, unix.PTRACE_SYSCALL_INFO_SECCOMP:
		// A thread that stops at every system call stops again for a filter.
		if th.Entered {
			return
		}
		th.Entered = info.Op == unix.PTRACE_SYSCALL_INFO_ENTRY
		if th.Call == nil {
			err := t.Guard(func() {
				if th.Call = t.enter(th, info); th.Call != nil {
					t.injectBefore(th, info.Args)
				}
			})
			if err != nil && !t.Broken() {
				th.Call = t.Undecoded(th, info.Nr, info.Args, err)
			}
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
			result := info.Result()
			t.Guard(func() { result = t.injectAfter(th, c, result) })
			t.Complete(th, c, result)
		}
	}
}

// endAll ends tracing, and reports whether it has ended. Processes with filters can't go on
// without a tracer.
func (t *tracer) endAll() bool {
	if t.until.IsZero() {
		t.until = time.Now().Add(tracee.Patience)
	}
	if !t.stops.Filtered {
		return t.letGo()
	}
	for pid := range t.Processes {
		unix.Kill(pid, unix.SIGKILL)
	}
	for tid := range t.held {
		unix.Kill(tid, unix.SIGKILL)
	}
	return !time.Now().Before(t.until)
}

// letGo detaches from each process whose threads have all stopped, and reports whether none is
// left. It can't wait for all processes: a thread in vfork stops only after its child, another
// process, has continued.
func (t *tracer) letGo() bool {
	if !t.leaving {
		t.leaving = true
		for tid, th := range t.Threads {
			if th.Running {
				ptrace.Interrupt(tid)
			}
		}
	}
	waiting := make(map[*tracee.Process]bool)
	if !time.Now().Before(t.until) {
		t.release()
	} else {
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
			t.injector.forget(th)
			t.Abandon(th)
			ptrace.Detach(tid, th.Signal)
			delete(t.Threads, tid)
		}
	}
	return len(t.Threads) == 0 && len(t.held) == 0
}

// Options returns the ptrace options for attaching to threads.
func (t *tracer) Options() uintptr {
	o := uintptr(unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEVFORK)
	if t.opt.Data {
		o |= unix.PTRACE_O_TRACEEXIT // to read the counters of empty polls
	}
	return o
}
