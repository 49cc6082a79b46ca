//go:build !linux

package rdmacm

import "syscall"

func errnoName(e syscall.Errno) string { return e.Error() }
