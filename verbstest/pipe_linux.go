package verbstest

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipe makes a pipe for events. The library reads from the descriptor.
func pipe() (fd int, w *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, nil, err
	}
	return ends[0], os.NewFile(uintptr(ends[1]), "events"), nil
}

// drain empties a pipe.
func drain(fd uintptr) {
	var b [64]byte
	unix.Read(int(fd), b[:])
}
