//go:build !linux

package operr

import "syscall"

// Name returns this system's text for the errno.
func Name(e syscall.Errno) string { return e.Error() }
