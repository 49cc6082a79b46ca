//go:build amd64 || arm64

package verbs

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// traceMagic, above traceGo in a getpid's sixth argument, tells the tracer that the
// others are for it: getpid takes none.
const (
	traceMagic = 0x7665_5262
	traceGo    = 0xfffe
)

// tell tells the tracer of a call on an object with count elements at list, of which n
// were posted or polled. Without a tracer it does nothing.
//
//go:noinline
func tell(what tracePoint, o *object, number, kind uint32, list unsafe.Pointer, count, n int, err error) {
	result := uintptr(uint32(n))
	if err != nil {
		result |= 1 << 32
		if errors.Is(err, ErrQueueFull) {
			result |= 1 << 33
		}
	}
	// The list is the caller's and lives through the call, in which nothing of
	// this program runs on this stack; the tracer only reads it.
	unix.RawSyscall6(unix.SYS_GETPID,
		uintptr(uint32(o.ctx.file.FD()))|uintptr(what)<<32,
		uintptr(o.handle)|uintptr(number)<<32,
		uintptr(list),
		uintptr(uint32(count))|uintptr(kind)<<32,
		result,
		traceMagic<<32|traceGo)
	runtime.KeepAlive(list)
}
