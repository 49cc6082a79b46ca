//go:build amd64 || arm64

package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// run traces o.command to its end, and that of all its descendants.
func run(o options) (ending, error) {
	// The kernel takes ptrace requests from the thread that attached only.
	runtime.LockOSThread()

	out := os.Stderr
	if o.output != "" {
		f, err := os.Create(o.output)
		if err != nil {
			return ending{}, err
		}
		defer f.Close()
		out = f
	}
	print := &printer{w: out, json: o.json}

	// From here on these are the program's, see forward.
	signals := make(chan os.Signal, 16)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM} {
		if !signal.Ignored(s) { // else the program would not find it ignored
			signal.Notify(signals, s)
		}
	}
	// A reader of the trace that goes away must not take the program with it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)

	pid, err := start(o.command)
	if err != nil {
		return ending{}, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return ending{}, os.NewSyscallError("pidfd_open", err)
	}
	if err := seize(pid); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return ending{}, fmt.Errorf("attach to %d: %w", pid, os.NewSyscallError("ptrace", err))
	}
	go forward(signals, pidfd)
	unix.Kill(pid, unix.SIGCONT)

	t := tracer{command: pid, threads: make(map[int]*thread), emit: print.print}
	end, err := t.run()
	if err == nil {
		err = print.err
	}
	if err != nil {
		// The program's end matters more than the trace's.
		fmt.Fprintf(os.Stderr, "ibvtrace: %v\n", err)
	}
	return ending{end}, nil
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
