package verbs

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func isNotSupported(e syscall.Errno) bool {
	switch e {
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOSYS, unix.ENOTTY:
		return true
	}
	return false
}
