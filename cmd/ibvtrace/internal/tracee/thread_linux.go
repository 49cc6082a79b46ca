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
	Comm    string // its name, "": to be read
	Running bool
	Call    *Call       // the one it is in, or nil
	Entered bool        // it stopped at the entry of a system call, and will at its exit
	Signal  unix.Signal // on its way to a thread that is being let go

	Interrupted uint64 // the system call that a stop interrupted, which goes on by another

	// Replayed reads its memory as it was when it did what is being replayed, nil:
	// nothing is.
	Replayed ioctl.Memory

	// Deciding: it has opened a file of which it is not known yet whether it
	// gives it commands by write(2), and so stops at every call until it has
	// given one, or for so many calls.
	Deciding *File
	Calls    int
}

// name returns the name that the thread goes by. A thread that changes its name stops
// for that.
func (th *Thread) name() string {
	if th.Comm == "" || th.Proc.Renames {
		th.Comm = ptrace.ThreadName(th.TID)
	}
	return th.Comm
}

// KeepWhole has a thread that a stop interrupted make its system call again, from its
// beginning, where it may not make the one that goes on with it, restart_syscall.
func (th *Thread) KeepWhole() {
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
		regs.Set(th.TID) // fails only if the thread is gone
	}
}
