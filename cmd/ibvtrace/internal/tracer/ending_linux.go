//go:build amd64 || arm64

package tracer

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Ending is how a trace ended.
type Ending struct {
	status  unix.WaitStatus
	command bool // a command was started, and status is its status
}

// Exit ends this process with the exit status or the signal of the command that it started,
// or with status 0 if it started none. It does not return.
func (e Ending) Exit() {
	if !e.command {
		os.Exit(0)
	}
	if e.status.Exited() {
		os.Exit(e.status.ExitStatus())
	}
	die(e.status.Signal())
	os.Exit(128 + int(e.status.Signal())) // the signal was blocked
}

// die kills this process with a signal. Go's runtime would print goroutines for some
// signals, so die restores the default action without the runtime's knowledge.
func die(sig unix.Signal) {
	runtime.LockOSThread()
	// Only the program should dump core.
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	setDefault(sig, 0)
	// Sent to this thread, the signal acts before the system call returns.
	unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
}

// ignoreStops prevents a SIGCHLD for each stop of a child, which Go's runtime would handle.
// wait4 does not need them.
func ignoreStops() { setDefault(unix.SIGCHLD, saNoCLDStop) }

const saNoCLDStop = 1 // SA_NOCLDSTOP, <asm/signal.h>

// setInterrupting makes a signal that is handled interrupt system calls instead of restarting
// them.
func setInterrupting(sig unix.Signal) {
	var action [4]uint64 // see setDefault
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0)
	action[1] &^= saRestart
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

const saRestart = 0x10000000 // SA_RESTART, <asm/signal.h>

// setDefault restores the default action for a signal.
func setDefault(sig unix.Signal, flags uint64) {
	// struct sigaction: the handler, here SIG_DFL, the flags, the restorer, and the mask, of
	// 8 bytes, on amd64 and arm64. The kernel uses the pointer during the call only.
	action := [4]uint64{1: flags}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
