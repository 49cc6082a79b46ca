//go:build amd64 || arm64

package tracing

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Report reports a call to the tracer. list is used in place of c.List. Without a tracer, Report
// has no effect.
//
//go:noinline
func Report(c Call, list unsafe.Pointer) {
	a := c.arguments()
	// The list stays alive and in place during the system call: nothing else of this
	// program runs on this stack. The tracer only reads it.
	unix.RawSyscall6(unix.SYS_GETPID, uintptr(a[0]), uintptr(a[1]), uintptr(list), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
	runtime.KeepAlive(list)
}
