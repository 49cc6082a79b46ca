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
	// A zeroed struct sigaction is SIG_DFL without flags. It is 32 bytes on
	// amd64 and arm64, its sa_mask 8, and the kernel only reads it.
	var action [4]uint64
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	// To this thread: it dies before it returns from this.
	unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
}
