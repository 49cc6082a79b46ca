//go:build !linux

package verbs

import "syscall"

func isNotSupported(syscall.Errno) bool { return false }
