//go:build race

package verbs

import (
	"runtime"
	"unsafe"
)

// A post happens before the poll of its completion, even by another goroutine. A program
// may rely on that to pass buffers on. The device orders the two, but the race detector
// doesn't see the device. So posting and polled inform it explicitly, as the runtime does
// for I/O on files.

var device byte // stands for all devices

func posting() { runtime.RaceReleaseMerge(unsafe.Pointer(&device)) }
func polled()  { runtime.RaceAcquire(unsafe.Pointer(&device)) }
