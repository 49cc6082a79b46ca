package rdmacm

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/brief"
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

// write gives the kernel one command, again where a signal interrupts it.
// Commands begin something, or ask for what is known; waits says that this one
// waits for something to end.
func write(fd uintptr, command []byte, waits bool) error {
	if !waits {
		return brief.Write(int(fd), command)
	}
	for {
		_, err := unix.Write(int(fd), command)
		if err != unix.EINTR {
			return err
		}
	}
}
