//go:build amd64 || arm64

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ptrace requests that x/sys/unix does not have in the form needed. The
// pointers given to the kernel are to local Go variables that it fills before
// the call returns.

const ptraceOptions = unix.PTRACE_O_EXITKILL |
	unix.PTRACE_O_TRACECLONE |
	unix.PTRACE_O_TRACEEXEC |
	unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACESECCOMP |
	unix.PTRACE_O_TRACESYSGOOD |
	unix.PTRACE_O_TRACEVFORK

func ptrace(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// seize attaches without stopping the thread. Only so attached can a tracer
// leave threads stopped by job control (PTRACE_LISTEN).
func seize(tid int) error { return ptrace(unix.PTRACE_SEIZE, tid, 0, ptraceOptions) }

// listen leaves a thread in its group-stop until SIGCONT ends it.
func listen(tid int) error { return ptrace(unix.PTRACE_LISTEN, tid, 0, 0) }

// A syscallInfo is struct ptrace_syscall_info, <linux/ptrace.h>: the same on
// every architecture, unlike the registers. rest is a union.
type syscallInfo struct {
	op    uint8
	_     [3]uint8
	arch  uint32
	ip    uint64
	sp    uint64
	nr    uint64 // entry and seccomp stop; at an exit stop: the result
	args  [6]uint64
	extra uint64 // ret_data and padding
}

// result returns what the system call returned, at its exit stop.
func (i *syscallInfo) result() int64 { return int64(i.nr) }

func getSyscallInfo(tid int) (*syscallInfo, error) {
	var i syscallInfo
	err := ptrace(unix.PTRACE_GET_SYSCALL_INFO, tid, unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)))
	return &i, err
}

// readMemory reads another process's memory, all of b or nothing.
func readMemory(tid int, addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
	n, err := unix.ProcessVMReadv(tid, local, remote, 0)
	if err != nil {
		return err
	}
	if n < len(b) {
		return unix.EFAULT
	}
	return nil
}
