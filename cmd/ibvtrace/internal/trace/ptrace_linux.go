//go:build amd64 || arm64

package trace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ptrace requests that x/sys/unix does not have in the form needed. The
// pointers given to the kernel are to local Go variables that it reads or fills
// before the call returns.

// options are what a thread is attached with.
func (t *tracer) options() uintptr {
	o := uintptr(unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEVFORK)
	if t.opt.Data {
		o |= unix.PTRACE_O_TRACEEXIT // before the probes' counters go
	}
	return o
}

func ptrace(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// seize attaches without stopping the thread. Only so attached can a tracer
// leave threads stopped by job control (PTRACE_LISTEN).
func seize(tid int, options uintptr) error { return ptrace(unix.PTRACE_SEIZE, tid, 0, options) }

// interrupt stops a thread that runs.
func interrupt(tid int) error { return ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0) }

// listen leaves a thread in its group-stop until SIGCONT ends it.
func listen(tid int) error { return ptrace(unix.PTRACE_LISTEN, tid, 0, 0) }

// detach lets a stopped thread go, with a signal or none.
func detach(tid int, sig unix.Signal) error {
	return ptrace(unix.PTRACE_DETACH, tid, 0, uintptr(sig))
}

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
	return transfer(tid, addr, b, unix.ProcessVMReadv)
}

// writeMemory writes another process's memory, all of b or an error.
func writeMemory(tid int, addr uint64, b []byte) error {
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

// readString reads a string of up to most bytes that ends with a NUL.
func readString(tid int, addr uint64, most int) (string, bool) {
	var b []byte
	for len(b) < most {
		// Not across a page's end at once: the next may be missing.
		part := make([]byte, min(most-len(b), int(4096-addr%4096)))
		if readMemory(tid, addr, part) != nil {
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
