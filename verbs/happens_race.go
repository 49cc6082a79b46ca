//go:build race

package verbs

import (
	"runtime"
	"unsafe"
)

// What a goroutine does before a post happens before what another goroutine does after
// polling the completion. A program may rely on that to pass buffers on. The device
// orders the two, but the race detector knows nothing of devices. So it is told
// explicitly, as the runtime does for I/O on files.

var device byte // stands for all devices

func posting() { runtime.RaceReleaseMerge(unsafe.Pointer(&device)) }
func polled()  { runtime.RaceAcquire(unsafe.Pointer(&device)) }
