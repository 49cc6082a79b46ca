package operr

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Name returns the errno's name in C.
func Name(e syscall.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return e.Error()
}
