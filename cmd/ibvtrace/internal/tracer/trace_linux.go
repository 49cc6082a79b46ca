//go:build amd64 || arm64

package tracer

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/attach"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/kernel"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// Run traces until the command and all its descendants have ended. It detaches from processes
// that it attached to at SIGINT, SIGQUIT, SIGHUP or SIGTERM. When the command has ended and
// descendants are left, a second SIGINT or one of the other signals kills them, or detaches from
// them if they have no filters. Run passes events to the sink, which it does not close.
func Run(o Options, sink event.Sink) (Ending, error) {
	if o.How == Ptrace {
		return runPtrace(o, sink, "")
	}
	w, err := kernel.Watch(kernel.Scope{All: o.All, Cgroup: o.Cgroup})
	switch {
	case err == nil:
		defer w.Close()
		return runKernel(o, sink, w)
	case o.How == Kernel:
		return Ending{}, err
	}
	return runPtrace(o, sink, fmt.Sprintf("seen by ptrace, with stops, as BPF can't be had: %v; not seen: posts and polls", err))
}

// Limits asks the device of a process's descriptor for its limits, by their names in struct
// ibv_device_attr. It returns none if that can't be had.
func Limits(pid, fd int) map[string]uint64 { return attach.Limits(pid, fd) }

// runPtrace is Run with ptrace. The head, if not "", is the trace's first note.
func runPtrace(o Options, sink event.Sink, head string) (Ending, error) {
	// The kernel accepts ptrace requests only from the thread that attached.
	runtime.LockOSThread()
	// The live heap is small, and traced programs wait during garbage collections.
	debug.SetGCPercent(800)

	signals := make(chan os.Signal, 16)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM} {
		// A command must inherit ignored signals. With -p, SIGINT must detach even if
		// ibvtrace runs in the background of a script, where the shell ignores it.
		if !signal.Ignored(s) || len(o.PIDs) > 0 && s == unix.SIGINT {
			signal.Notify(signals, s)
		}
	}
	// If the reader of the trace exits, ibvtrace must not: the program would be killed.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)

	ignoreStops()

	t := newTracer(o, sink)
	t.tid = unix.Gettid()
	if head != "" {
		t.Note(tracee.NewProcess(os.Getpid()), head)
	}
	signal.Notify(make(chan os.Signal, 1), wakeSignal)
	setInterrupting(wakeSignal)
	if len(o.PIDs) > 0 {
		if err := attachAll(t.Set, o.PIDs, t.attach); err != nil {
			return Ending{}, err
		}
		go func() {
			<-signals
			t.quit()
		}()
	} else {
		pidfd, err := t.launch()
		if err != nil {
			return Ending{}, err
		}
		go t.forward(signals, pidfd)
		unix.Kill(t.command, unix.SIGCONT)
	}
	end, err := t.run()
	if err == nil {
		err = t.sinkErr
	}
	return Ending{end, t.command != 0}, err
}

// attachAll attaches to processes. One that has ended is noted, unless all have. Those that were
// attached go on when this process ends.
func attachAll(s *tracee.Set, pids []int, attach func(pid int) error) error {
	left := len(pids)
	for _, pid := range pids {
		err := attach(pid)
		if err == unix.ESRCH && left > 1 {
			left--
			s.Note(tracee.NewProcess(os.Getpid()), fmt.Sprintf("there is no process %d", pid))
			continue
		}
		if err != nil {
			return fmt.Errorf("attach to %d: %w", pid, err)
		}
	}
	return nil
}

// attach attaches to a process.
func (t *tracer) attach(pid int) error {
	if err := attach.New(t.Set, t).Attach(pid); err != nil {
		return err
	}
	why := "attached by ptrace: it stops at every system call, and is much slower"
	if !t.opt.Data {
		why += "; not seen: posts and polls"
	}
	t.Note(tracee.NewProcess(pid), why)
	return nil
}

// launch starts the command, which waits for SIGCONT, and attaches to it.
func (t *tracer) launch() (pidfd int, err error) {
	pid, err := start(t.opt.Command, !t.opt.NoFilter)
	if err != nil {
		return 0, err
	}
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, os.NewSyscallError("pidfd_open", err)
	}
	options := t.Options()
	// Without a tracer the filters would make every verb fail, so no program that was
	// started with them may outlive it.
	if !t.opt.NoFilter {
		options |= unix.PTRACE_O_EXITKILL
	}
	if err := ptrace.Seize(pid, options); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, fmt.Errorf("attach to %d: %w", pid, os.NewSyscallError("ptrace", err))
	}
	t.command, t.stops.Filtered = pid, !t.opt.NoFilter
	_, _, t.stops.Inherited = ptrace.ProcessOf(os.Getpid())
	t.Thread(pid, nil).Running = true
	return pidfd, nil
}

// wakeSignal makes wait4 return, see quit. Other signals do not: Go's runtime makes them restart
// system calls.
const wakeSignal = unix.SIGUSR2

// wakeEvery is the interval at which quit sends the signal.
const wakeEvery = 20 * time.Millisecond

// quit makes run end, and does not return. It sends the signal again and again: one that comes
// just before wait4 has no effect.
func (t *tracer) quit() {
	t.leave.Store(true)
	for ; ; time.Sleep(wakeEvery) {
		unix.Tgkill(os.Getpid(), t.tid, wakeSignal)
	}
}

// forward forwards signals that ibvtrace receives to the command. After the command has ended,
// they concern its descendants.
func (t *tracer) forward(signals <-chan os.Signal, pidfd int) {
	warned := false
	for s := range signals {
		sig := s.(unix.Signal)
		err := unix.PidfdSendSignal(pidfd, 0, nil, 0)
		// A signal that comes from the terminal has reached the command too, which is
		// in the same process group.
		if err == nil && (sig == unix.SIGTERM || !inForeground()) {
			err = unix.PidfdSendSignal(pidfd, sig, nil, 0)
		}
		if err != unix.ESRCH {
			continue
		}
		left := ptrace.TracedBy(t.tid)
		switch {
		case len(left) == 0:
			continue // run is about to end
		case t.opt.NoFilter:
			fmt.Fprintf(os.Stderr, "ibvtrace: the command has ended; no longer traced: %s\n", list(left))
		case sig == unix.SIGINT && !warned:
			warned = true
			fmt.Fprintf(os.Stderr, "ibvtrace: the command has ended; a second interrupt kills what it has left: %s\n", list(left))
			continue
		default:
			fmt.Fprintf(os.Stderr, "ibvtrace: the command has ended; killed: %s\n", list(left))
		}
		t.quit()
	}
}

// list returns the IDs and the names of processes.
func list(pids []int) string {
	const most = 10
	var words []string
	for _, pid := range pids[:min(len(pids), most)] {
		words = append(words, fmt.Sprintf("%d %s", pid, text.Clean(ptrace.ThreadName(pid))))
	}
	if more := len(pids) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// inForeground reports whether this process is in the terminal's foreground process group.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
