//go:build amd64 || arm64

package stops

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A program may create a child with CLONE_UNTRACED. The child would inherit the filters, and
// without a tracer the kernel fails the system calls that they select. So CLONE_UNTRACED is
// cleared, and the child is traced.

// EnterClone clears CLONE_UNTRACED in the argument of clone, and restores it in the parent
// afterwards.
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

// EnterClone3 is EnterClone for clone3, whose flags are the first word of struct clone_args in
// memory.
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
		// A tracer can write to read-only memory.
		unix.PtracePokeData(th.TID, uintptr(addr), binary.NativeEndian.AppendUint64(nil, flags))
	}
	set(flags &^ unix.CLONE_UNTRACED)
	return &tracee.Call{Silent: true, Finish: func(*tracee.Thread, *tracee.Call) { set(flags) }}
}
