//go:build amd64 || arm64

package trace

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Ending is how a trace ended.
type Ending struct {
	status  unix.WaitStatus
	command bool // the status is that of a program that was started
}

// Exit ends this process as the program ended that it had started, else with
// success. It does not return.
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

// die kills this process with a signal. Go's runtime would print goroutines
// for some of them, so the kernel's default is restored behind its back.
func die(sig unix.Signal) {
	runtime.LockOSThread()
	// The core that counts is the program's.
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	setDefault(sig, 0)
	// To this thread: it dies before it returns from this.
	unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
}

// ignoreStops has the kernel send no SIGCHLD for each stop of a child: Go's runtime
// would handle each. wait4 does not need them.
func ignoreStops() { setDefault(unix.SIGCHLD, saNoCLDStop) }

const saNoCLDStop = 1 // SA_NOCLDSTOP, <asm/signal.h>

// setDefault restores the default action for a signal.
func setDefault(sig unix.Signal, flags uint64) {
	// The kernel only reads struct sigaction: the handler, SIG_DFL, the flags, the
	// restorer, and the mask, of 8 bytes, on amd64 and arm64.
	action := [4]uint64{1: flags}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
