package rdmacm

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
