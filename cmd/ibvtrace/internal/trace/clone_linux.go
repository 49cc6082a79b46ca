//go:build amd64 || arm64

package trace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A program may say that a child is to be no tracer's. It would have the filters all the
// same, and without a tracer the kernel refuses what they choose. So it does not get its
// way.

// enterClone has the kernel make a child a traced one. The flags are put back in the
// parent, once it has the child.
func (t *tracer) enterClone(th *thread, info *syscallInfo) *call {
	flags, arch := info.args[0], info.arch
	if flags&unix.CLONE_UNTRACED == 0 {
		return nil
	}
	setFirst(th.tid, arch, flags&^unix.CLONE_UNTRACED)
	return &call{silent: true, finish: func(*tracer, *thread, *call) {
		if !firstIsResult {
			setFirst(th.tid, arch, flags)
		}
	}}
}

// enterClone3 does so for the form that has the flags in memory, in the first word of
// struct clone_args.
func (t *tracer) enterClone3(th *thread, addr uint64) *call {
	var b [8]byte
	if readMemory(th.tid, addr, b[:]) != nil {
		return nil
	}
	flags := binary.NativeEndian.Uint64(b[:])
	if flags&unix.CLONE_UNTRACED == 0 {
		return nil
	}
	set := func(flags uint64) {
		// The memory may not be writable; a tracer may write there all the same.
		unix.PtracePokeData(th.tid, uintptr(addr), binary.NativeEndian.AppendUint64(nil, flags))
	}
	set(flags &^ unix.CLONE_UNTRACED)
	return &call{silent: true, finish: func(*tracer, *thread, *call) { set(flags) }}
}
