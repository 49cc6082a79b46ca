//go:build !linux

package operr

import "syscall"

// Name returns what this system calls the errno.
func Name(e syscall.Errno) string { return e.Error() }
