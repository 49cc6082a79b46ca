//go:build !amd64 && !arm64

package mmio

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/spin"
)

// Supported is false: this package has no barriers for this architecture.
const Supported = false

const refusal = "mmio: only amd64 and arm64 are supported"

func ToDevice()                                         { panic(refusal) }
func FromDevice()                                       { panic(refusal) }
func FlushWrites()                                      { panic(refusal) }
func Load32(*uint32) uint32                             { panic(refusal) }
func Publish(*uint32, uint32)                           { panic(refusal) }
func Doorbell(*uint32, uint32, *uint64, uint64)         { panic(refusal) }
func DoorbellUncached(*uint32, uint32, *uint64, uint64) { panic(refusal) }
func RingLocked(*uint64, uint64)                        { panic(refusal) }
func CopyLocked(_, _ unsafe.Pointer, _ int)             { panic(refusal) }
func BlueFlame(*Bell, uint32, unsafe.Pointer, int)      { panic(refusal) }
func BlueFlame64(*Bell, uint32, unsafe.Pointer)         { panic(refusal) }
func BlueFlame128(*Bell, uint32, unsafe.Pointer)        { panic(refusal) }

func TryFlame(*Bell, uint32, unsafe.Pointer, int, *Shared) bool { panic(refusal) }

type Shared struct {
	Lock   spin.Lock
	Offset uint32
}

type Bell struct {
	Record       *uint32
	Reg          unsafe.Pointer
	Size, Offset uint32
}
