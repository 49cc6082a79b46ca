//go:build amd64 || arm64

package tracee

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/ioctl"
)

// A Thread is a traced thread.
type Thread struct {
	TID     int
	Proc    *Process
	Comm    string // its name; "" if it must be read
	Running bool
	Call    *Call       // the current call, or nil
	Entered bool        // it has stopped at the entry of a system call, and will stop at the exit
	Signal  unix.Signal // to be delivered when detaching

	Interrupted uint64 // the interrupted system call that restart_syscall continues

	// Replayed reads the memory that the kernel has copied for a call. It is nil if the thread stops
	// for its calls.
	Replayed ioctl.Memory

	// Deciding is a file that the thread has opened. Until its first command shows
	// whether the program sends commands by write(2), every system call stops. Calls
	// counts and limits them.
	Deciding *File
	Calls    int
}

// name returns the thread's name. A cached name is valid: prctl(PR_SET_NAME) stops.
func (th *Thread) name() string {
	if th.Comm == "" || th.Proc.Renames {
		th.Comm = ptrace.ThreadName(th.TID)
	}
	return th.Comm
}

// RestartFromBeginning makes a thread restart an interrupted system call from its beginning, if the
// program's filters forbid restart_syscall, which would continue it.
func (th *Thread) RestartFromBeginning() {
	regs, err := ptrace.GetRegisters(th.TID)
	if err != nil {
		return
	}
	nr, ok := regs.Restarts()
	if !ok {
		return
	}
	if nr != unix.SYS_RESTART_SYSCALL {
		th.Interrupted = nr
	}
	if th.Interrupted != 0 && !th.Proc.Allows(unix.SYS_RESTART_SYSCALL) {
		regs.Again(th.Interrupted)
		regs.Set(th.TID) // fails only if the thread has ended
	}
}
