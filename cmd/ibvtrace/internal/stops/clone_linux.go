//go:build amd64 || arm64

package stops

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A program may say that no tracer is to have a child. The child would have the filters all
// the same, and without a tracer the kernel refuses what they choose. So the child is
// traced.

// EnterClone has the kernel make a child a traced one. The flags are put back in the
// parent, once it has the child.
func (t *Stops) EnterClone(th *tracee.Thread, info *ptrace.SyscallInfo) *tracee.Call {
	flags, arch := info.Args[0], info.Arch
	if flags&unix.CLONE_UNTRACED == 0 {
		return nil
	}
	ptrace.SetFirst(th.TID, arch, flags&^unix.CLONE_UNTRACED)
	return &tracee.Call{Silent: true, Finish: func(*tracee.Thread, *tracee.Call) {
		if !ptrace.FirstIsResult {
			ptrace.SetFirst(th.TID, arch, flags)
		}
	}}
}

// EnterClone3 does so for the form that has the flags in memory, in the first word of
// struct clone_args.
func (t *Stops) EnterClone3(th *tracee.Thread, addr uint64) *tracee.Call {
	var b [8]byte
	if ptrace.ReadMemory(th.TID, addr, b[:]) != nil {
		return nil
	}
	flags := binary.NativeEndian.Uint64(b[:])
	if flags&unix.CLONE_UNTRACED == 0 {
		return nil
	}
	set := func(flags uint64) {
		// The memory may not be writable; a tracer may write there all the same.
		unix.PtracePokeData(th.TID, uintptr(addr), binary.NativeEndian.AppendUint64(nil, flags))
	}
	set(flags &^ unix.CLONE_UNTRACED)
	return &tracee.Call{Silent: true, Finish: func(*tracee.Thread, *tracee.Call) { set(flags) }}
}
