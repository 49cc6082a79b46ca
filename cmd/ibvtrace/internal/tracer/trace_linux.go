//go:build amd64 || arm64

package tracer

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

// Run traces until the command and all its descendants have ended. Of processes that it
// attached to, it detaches at SIGINT, SIGQUIT, SIGHUP or SIGTERM. It passes events to the
// sink, which it does not close.
func Run(o Options, sink event.Sink) (Ending, error) {
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
	if len(o.PIDs) > 0 {
		if err := attach.New(t.Set, t).Attach(o.PIDs); err != nil {
			return Ending{}, err
		}
		go func() {
			<-signals
			t.leave.Store(true)
			wake()
			time.Sleep(tracee.Patience)
			wake() // in case a thread has not stopped
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
	// Without a tracer the filters would make every verb fail, so no program that was
	// started with them may outlive it.
	if err := ptrace.Seize(pid, options|unix.PTRACE_O_EXITKILL); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, 0, fmt.Errorf("attach to %d: %w", pid, os.NewSyscallError("ptrace", err))
	}
	return pid, pidfd, nil
}

// wake makes wait4 return, by starting a child that exits. A signal would not do.
func wake() {
	if p, err := os.StartProcess("/proc/self/exe", []string{wakerName}, &os.ProcAttr{}); err == nil {
		p.Release()
	}
}

// forward forwards signals that ibvtrace receives to the program.
func forward(signals <-chan os.Signal, pidfd int) {
	for s := range signals {
		sig := s.(unix.Signal)
		if sig != unix.SIGTERM && inForeground() {
			// The signal comes from the terminal. The program is in the same
			// process group and has received it too.
			continue
		}
		if err := unix.PidfdSendSignal(pidfd, sig, nil, 0); err == unix.ESRCH {
			// The command has ended, and only its descendants are left.
			die(sig)
		}
	}
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
