package rdmacm

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// errnoName is the errno as C programmers know it.
func errnoName(e syscall.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return e.Error()
}
