package rdmacm

import (
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file holds:
//
// The kernel gets the address of the answer as a u64, which the garbage
// collector can't see. Command and answer therefore live in a frame, which
// comes from a sync.Pool: a heap object, which Go never moves, and which the
// caller holds until it releases it. in and out view its arrays, whose words
// are aligned for any ABI struct, as structs that contain no Go pointers; they
// panic on one that doesn't fit.

// A frame is one command for the kernel, and the room for its answer.
type frame struct {
	hdr    uapi.RdmaUcmCmdHdr
	input  [80]uint64 // behind the header, without a gap
	output [96]uint64
}

var frames = sync.Pool{New: func() any { return new(frame) }}

func newFrame() *frame { return frames.Get().(*frame) }

// release clears what was used, which is little of it.
func (f *frame) release() {
	clear(f.input[:words(f.hdr.In)])
	clear(f.output[:words(f.hdr.Out)])
	f.hdr = uapi.RdmaUcmCmdHdr{}
	frames.Put(f)
}

func words(bytes uint16) int { return (int(bytes) + 7) / 8 }

// in returns the command's body, zeroed, to be filled.
func in[T any](f *frame) *T {
	size := unsafe.Sizeof(*new(T))
	if size > unsafe.Sizeof(f.input) {
		panic("rdmacm: the command does not fit")
	}
	f.hdr.In = uint16(size)
	return (*T)(unsafe.Pointer(&f.input))
}

// out returns where the answer will be, and its address. extra bytes behind
// the struct belong to it.
func out[T any](f *frame, extra int) (*T, uint64) {
	size := unsafe.Sizeof(*new(T)) + uintptr(extra)
	if size > unsafe.Sizeof(f.output) {
		panic("rdmacm: the answer does not fit")
	}
	f.hdr.Out = uint16(size)
	return (*T)(unsafe.Pointer(&f.output)), uint64(uintptr(unsafe.Pointer(&f.output)))
}

// bytes is what is written to the kernel.
func (f *frame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Sizeof(f.hdr)+uintptr(f.hdr.In))
}

// answer returns n bytes of the answer from offset off.
func (f *frame) answer(off, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&f.output)), unsafe.Sizeof(f.output))[off:][:n]
}
