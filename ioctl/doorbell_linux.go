package ioctl

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Why the unsafe code of this file is correct: the pointer is converted to a uintptr in the
// call's argument list, which keeps its target alive. Objects on the Go heap don't move.

// Doorbell passes one command of the write ABI to the kernel, and repeats it if a signal
// interrupts it. Only rxe and siw have such doorbells: see packages provider/rxe and
// provider/siw.
//
// A brief doorbell bypasses Go's scheduler. If a system call takes longer than about 20 µs,
// the scheduler takes the processor from the goroutine and wakes a thread to use it. The
// goroutine gets a processor back late. To detect long calls, the scheduler's monitor runs
// every 20 µs. Together they would make small messages cost half as much again. Until a brief
// doorbell returns, nothing else can use its processor, and the garbage collector waits. So a
// brief doorbell must never sleep, and have little to do.
func (f *File) Doorbell(cmd []byte, brief bool) error {
	if f.other != nil {
		return f.other.Write(cmd)
	}
	for {
		var err error
		if brief {
			_, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(f.fd), uintptr(unsafe.Pointer(unsafe.SliceData(cmd))), uintptr(len(cmd)))
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
