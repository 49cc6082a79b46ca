package verbs

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func setNonblock(fd int) { unix.SetNonblock(fd, true) }

func closeFD(fd int) error { return unix.Close(fd) }

// readNow reads from a descriptor that doesn't block, or returns EAGAIN. Go's scheduler needn't
// know about the call, because the kernel never sleeps in it.
//
// Why the unsafe code is correct: b is on the heap or on the stack, and stays there for the call.
// A raw system call can't move the stack.
func readNow(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
