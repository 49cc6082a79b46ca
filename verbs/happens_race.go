//go:build race

package verbs

import (
	"runtime"
	"unsafe"
)

// What a goroutine does before it posts happens before what another does once it
// has polled the completion: a program may give its buffers back by their
// completions. The device orders the two, of which the race detector knows
// nothing, so it is told, as the runtime tells it of what goes through files.

var device byte // stands for all devices

func posting() { runtime.RaceReleaseMerge(unsafe.Pointer(&device)) }
func polled()  { runtime.RaceAcquire(unsafe.Pointer(&device)) }
