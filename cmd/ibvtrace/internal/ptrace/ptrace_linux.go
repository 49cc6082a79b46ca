//go:build amd64 || arm64

package ptrace

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are ptrace requests that x/sys/unix lacks. The pointers passed to the kernel point to
// local Go variables, which it reads or fills before the call returns.

func ptrace(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Seize attaches without stopping the thread. Listen works only on threads attached in this
// way.
func Seize(tid int, options uintptr) error { return ptrace(unix.PTRACE_SEIZE, tid, 0, options) }

// Interrupt stops a running thread.
func Interrupt(tid int) error { return ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0) }

// Listen leaves a thread in its group-stop until SIGCONT ends it.
func Listen(tid int) error { return ptrace(unix.PTRACE_LISTEN, tid, 0, 0) }

// Detach detaches from a stopped thread, and delivers a signal if sig is not 0.
func Detach(tid int, sig unix.Signal) error {
	return ptrace(unix.PTRACE_DETACH, tid, 0, uintptr(sig))
}

// A SyscallInfo is struct ptrace_syscall_info, <linux/ptrace.h>. Unlike the registers, it is
// the same on every architecture. The fields from Nr on are a union.
type SyscallInfo struct {
	Op    uint8
	_     [3]uint8
	Arch  uint32
	IP    uint64
	sp    uint64
	Nr    uint64 // at an exit stop, the result
	Args  [6]uint64
	extra uint64 // ret_data and padding
}

// Result returns the system call's result. It is valid at a syscall-exit stop.
func (i *SyscallInfo) Result() int64 { return int64(i.Nr) }

// GetSyscallInfo returns the system call at which a thread has stopped.
func GetSyscallInfo(tid int) (*SyscallInfo, error) {
	var i SyscallInfo
	err := ptrace(unix.PTRACE_GET_SYSCALL_INFO, tid, unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)))
	return &i, err
}

// ReadMemory fills b from another process's memory, or fails.
func ReadMemory(tid int, addr uint64, b []byte) error {
	return transfer(tid, addr, b, unix.ProcessVMReadv)
}

// WriteMemory writes all of b to another process's memory, or fails.
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

// ReadString reads a NUL-terminated string of at most max bytes.
func ReadString(tid int, addr uint64, max int) (string, bool) {
	var b []byte
	for len(b) < max {
		// Not beyond the page's end: the next page may be unmapped.
		part := make([]byte, min(max-len(b), int(4096-addr%4096)))
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

// ReadPointer reads a pointer. It returns false if addr is 0 or not readable.
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

// WriteUint32 writes a 32-bit number.
func WriteUint32(pid int, addr uint64, v uint32) error {
	return WriteMemory(pid, addr, binary.NativeEndian.AppendUint32(nil, v))
}
