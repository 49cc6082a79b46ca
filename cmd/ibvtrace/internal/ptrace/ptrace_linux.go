//go:build amd64 || arm64

package ptrace

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ptrace requests that x/sys/unix does not have in the form needed. The pointers given
// to the kernel are to local Go variables, which it reads or fills before the call returns.

func ptrace(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Seize attaches without stopping the thread. Only so attached can a tracer
// leave threads stopped by job control (PTRACE_LISTEN).
func Seize(tid int, options uintptr) error { return ptrace(unix.PTRACE_SEIZE, tid, 0, options) }

// Interrupt stops a thread that runs.
func Interrupt(tid int) error { return ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0) }

// Listen leaves a thread in its group-stop until SIGCONT ends it.
func Listen(tid int) error { return ptrace(unix.PTRACE_LISTEN, tid, 0, 0) }

// Detach lets a stopped thread go, with a signal or none.
func Detach(tid int, sig unix.Signal) error {
	return ptrace(unix.PTRACE_DETACH, tid, 0, uintptr(sig))
}

// A SyscallInfo is struct ptrace_syscall_info, <linux/ptrace.h>: the same on
// every architecture, unlike the registers. rest is a union.
type SyscallInfo struct {
	Op    uint8
	_     [3]uint8
	Arch  uint32
	IP    uint64
	sp    uint64
	Nr    uint64 // entry and seccomp stop; at an exit stop: the result
	Args  [6]uint64
	extra uint64 // ret_data and padding
}

// Result returns what the system call returned, at its exit stop.
func (i *SyscallInfo) Result() int64 { return int64(i.Nr) }

// GetSyscallInfo returns at which system call a stopped thread is.
func GetSyscallInfo(tid int) (*SyscallInfo, error) {
	var i SyscallInfo
	err := ptrace(unix.PTRACE_GET_SYSCALL_INFO, tid, unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)))
	return &i, err
}

// ReadMemory reads another process's memory, all of b or nothing.
func ReadMemory(tid int, addr uint64, b []byte) error {
	return transfer(tid, addr, b, unix.ProcessVMReadv)
}

// WriteMemory writes another process's memory, all of b or an error.
func WriteMemory(tid int, addr uint64, b []byte) error {
	return transfer(tid, addr, b, unix.ProcessVMWritev)
}

func transfer(tid int, addr uint64, b []byte, f func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
	n, err := f(tid, local, remote, 0)
	if err != nil {
		return err
	}
	if n < len(b) {
		return unix.EFAULT
	}
	return nil
}

// ReadString reads a string of up to most bytes that ends with a NUL.
func ReadString(tid int, addr uint64, most int) (string, bool) {
	var b []byte
	for len(b) < most {
		// Not across a page's end at once: the next may be missing.
		part := make([]byte, min(most-len(b), int(4096-addr%4096)))
		if ReadMemory(tid, addr, part) != nil {
			return "", false
		}
		for i, c := range part {
			if c == 0 {
				return string(append(b, part[:i]...)), true
			}
		}
		b = append(b, part...)
		addr += uint64(len(part))
	}
	return string(b), true
}

// ReadPointer reads a pointer; it is not ok where it is not to be read.
func ReadPointer(tid int, addr uint64) (uint64, bool) {
	var b [8]byte
	if addr == 0 || ReadMemory(tid, addr, b[:]) != nil {
		return 0, false
	}
	return binary.NativeEndian.Uint64(b[:]), true
}

// WritePointer writes a pointer.
func WritePointer(tid int, addr, to uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], to)
	return WriteMemory(tid, addr, b[:])
}

// WriteUint32 writes a number.
func WriteUint32(pid int, addr uint64, v uint32) error {
	return WriteMemory(pid, addr, binary.NativeEndian.AppendUint32(nil, v))
}
