//go:build amd64 || arm64

package trace

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/attach"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// Run traces to the end of the command and all its descendants, or until SIGINT or
// another signal that ends programs tells it to let go of those it attached to. It
// gives what it sees to the sink, which it does not close.
func Run(o Options, sink event.Sink) (Ending, error) {
	// The kernel takes ptrace requests from the thread that attached only.
	runtime.LockOSThread()
	// Little is kept, and programs wait while it is looked for what is not.
	debug.SetGCPercent(800)

	signals := make(chan os.Signal, 16)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM} {
		// A program that is started has to find ignored what was. Who attached
		// from the background of a script has no other way to end that well.
		if !signal.Ignored(s) || len(o.PIDs) > 0 && s == unix.SIGINT {
			signal.Notify(signals, s)
		}
	}
	// A reader of the trace that goes away must not take the program with it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)

	ignoreStops()

	t := newTracer(o, sink)
	if len(o.PIDs) > 0 {
		if err := attach.New(t.Set, t).Attach(o.PIDs); err != nil {
			return Ending{}, err
		}
		go func() {
			<-signals
			t.leave.Store(true)
			wake()
			time.Sleep(tracee.Patience)
			wake() // should a thread not have stopped
		}()
	} else {
		pid, pidfd, err := launch(o.Command, t.Options())
		if err != nil {
			return Ending{}, err
		}
		t.command, t.stops.Command = pid, true
		_, _, _, t.stops.Inherited = ptrace.ProcessOf(os.Getpid())
		go forward(signals, pidfd)
		unix.Kill(pid, unix.SIGCONT)
	}
	end, err := t.run()
	if err == nil {
		err = t.sinkErr
	}
	return Ending{end, t.command != 0}, err
}

// launch starts the command and attaches to it.
func launch(command []string, options uintptr) (pid, pidfd int, err error) {
	if pid, err = start(command); err != nil {
		return 0, 0, err
	}
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, 0, os.NewSyscallError("pidfd_open", err)
	}
	// Without a tracer the filters would fail every verb: no program that
	// was started with them outlives it.
	if err := ptrace.Seize(pid, options|unix.PTRACE_O_EXITKILL); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, 0, fmt.Errorf("attach to %d: %w", pid, os.NewSyscallError("ptrace", err))
	}
	return pid, pidfd, nil
}

// wake makes wait4 return, which no signal does: a child of this process ends.
func wake() {
	if p, err := os.StartProcess("/proc/self/exe", []string{wakerName}, &os.ProcAttr{}); err == nil {
		p.Release()
	}
}

// forward hands signals that ibvtrace gets on to the program.
func forward(signals <-chan os.Signal, pidfd int) {
	for s := range signals {
		sig := s.(unix.Signal)
		if sig != unix.SIGTERM && inForeground() {
			// Typed at the terminal: the program, in the same
			// process group, has it already.
			continue
		}
		if err := unix.PidfdSendSignal(pidfd, sig, nil, 0); err == unix.ESRCH {
			// Only descendants are left, and they are not ours to
			// signal one by one.
			die(sig)
		}
	}
}

// inForeground reports whether keys typed at the terminal signal this process.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
