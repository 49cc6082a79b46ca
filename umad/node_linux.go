package umad

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// The unsafe code here passes pointers to two ioctls. Each points to a variable whose size is in
// the ioctl's number. The variable contains no pointers, and lives until the call returns.

// openNode opens a file of /dev/infiniband for the runtime's poller.
func openNode(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// registerAgent registers an agent, with indices of P_Keys in the messages, and sets its number.
func registerAgent(f *os.File, q *uapi.IbUserMadRegReq2) error {
	return control(f, uapi.IB_USER_MAD_REGISTER_AGENT2, unsafe.Pointer(q))
}

func unregisterAgent(f *os.File, id uint32) error {
	return control(f, uapi.IB_USER_MAD_UNREGISTER_AGENT, unsafe.Pointer(&id))
}

func control(f *os.File, request uintptr, argument unsafe.Pointer) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	err = c.Control(func(fd uintptr) {
		for {
			if _, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(argument)); errno != unix.EINTR {
				return
			}
		}
	})
	runtime.KeepAlive(argument)
	if err == nil && errno != 0 {
		return errno
	}
	return err
}

// readLong reads more than an os.File does at a time.
func readLong(f *os.File, b []byte) (n int, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := c.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), b); err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	return max(n, 0), errors.Join(waitErr, err)
}

// skip reads and drops a message of a size. Its memory is not from the heap: if there is no
// room for another host's message, the result is an error and not the end of the program.
func skip(size int, read func([]byte) error) error {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	return errors.Join(read(b), unix.Munmap(b))
}
