package brief

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Why the unsafe code of this file holds:
//
// A pointer becomes a number in the call itself, which keeps what it points at
// alive; the Go heap doesn't move. The address that mmap returns is none of Go's
// memory, and its mapping is as long as the slice.

// Write writes b, a command for a device node, again where a signal interrupts
// it.
func Write(fd int, b []byte) error {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Ioctl makes a request, once.
func Ioctl(fd int, request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}

// Mmap maps n bytes of a device, shared.
func Mmap(fd int, offset int64, n, prot int) ([]byte, error) {
	addr, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 0, uintptr(n), uintptr(prot), unix.MAP_SHARED, uintptr(fd), uintptr(offset))
	if errno != 0 {
		return nil, errno
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n), nil
}

// Munmap ends what Mmap mapped.
func Munmap(b []byte) error {
	_, _, errno := unix.RawSyscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
