//go:build !linux

package verbs

import "syscall"

func errnoName(e syscall.Errno) string { return e.Error() }

func isNotSupported(syscall.Errno) bool { return false }
