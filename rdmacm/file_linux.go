package rdmacm

import (
	"os"

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
