package ioctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Why the unsafe code of this file holds: the pointer becomes a number in the call
// itself, which keeps what it points at alive; the Go heap doesn't move.

// Doorbell hands the kernel one command of the write ABI, again where a signal
// interrupts it. It exists for rxe alone, whose doorbell is such a command: see
// package provider/rxe.
//
// Go's scheduler is not told of a brief one. From a goroutine that is in a call
// for longer than some 20 µs it takes the processor, wakes a thread to use it, and
// gives a processor back late, which would cost half as much again as a small
// message. Until a brief doorbell returns, whoever needs that processor waits,
// and so does the garbage collector: it must be one that never sleeps, and that has
// little to do.
func (f *File) Doorbell(cmd []byte, brief bool) error {
	for {
		var err error
		if brief {
			_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(f.fd), uintptr(unsafe.Pointer(unsafe.SliceData(cmd))), uintptr(len(cmd)))
			if errno != 0 {
				err = errno
			}
		} else {
			_, err = unix.Write(f.fd, cmd)
		}
		if err != unix.EINTR {
			return err
		}
	}
}
