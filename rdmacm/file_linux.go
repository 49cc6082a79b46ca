package rdmacm

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openNode opens a device node for the runtime's poller.
func openNode(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		default:
			return nil, err
		}
	}
}

// write passes one command to the kernel, and repeats it if a signal interrupts
// it.
func write(fd uintptr, command []byte) error {
	for {
		_, err := unix.Write(int(fd), command)
		if err != unix.EINTR {
			return err
		}
	}
}

// withoutSignals runs a command that a signal would interrupt: Go's runtime sends signals to its
// threads to preempt goroutines. The command must be brief, or a system call.
func withoutSignals(command func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i]-- // all bits
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return err
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return command()
}
