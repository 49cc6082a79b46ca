package verbs

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// errnoName returns the errno's name in C.
func errnoName(e syscall.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return e.Error()
}

func isNotSupported(e syscall.Errno) bool {
	switch e {
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOSYS, unix.ENOTTY:
		return true
	}
	return false
}
