package rdmacm

import (
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file holds:
//
// The kernel gets the address of the answer as a u64, which the garbage
// collector can't see. Command and answer therefore live in a frame from a
// sync.Pool. It is a heap object, which Go never moves, and the caller holds it
// until release. in and out return views of its arrays as structs without Go
// pointers. The arrays' words are aligned for any ABI struct, and in and out
// panic if the struct doesn't fit.

// A frame is one command for the kernel, and the room for its answer.
type frame struct {
	hdr    uapi.RdmaUcmCmdHdr
	input  [80]uint64 // directly after the header
	output [96]uint64
}

var frames = sync.Pool{New: func() any { return new(frame) }}

func newFrame() *frame { return frames.Get().(*frame) }

// release clears the part that was used, and returns the frame to the pool.
func (f *frame) release() {
	clear(f.input[:words(f.hdr.In)])
	clear(f.output[:words(f.hdr.Out)])
	f.hdr = uapi.RdmaUcmCmdHdr{}
	frames.Put(f)
}

func words(bytes uint16) int { return (int(bytes) + 7) / 8 }

// in returns the command's body, zeroed, for the caller to fill in.
func in[T any](f *frame) *T {
	size := unsafe.Sizeof(*new(T))
	if size > unsafe.Sizeof(f.input) {
		panic("rdmacm: the command does not fit")
	}
	f.hdr.In = uint16(size)
	return (*T)(unsafe.Pointer(&f.input))
}

// out returns a view of the answer, and its address. The answer is the struct
// and extra bytes after it.
func out[T any](f *frame, extra int) (*T, uint64) {
	size := unsafe.Sizeof(*new(T)) + uintptr(extra)
	if size > unsafe.Sizeof(f.output) {
		panic("rdmacm: the answer does not fit")
	}
	f.hdr.Out = uint16(size)
	return (*T)(unsafe.Pointer(&f.output)), uint64(uintptr(unsafe.Pointer(&f.output)))
}

// bytes returns the command, as it is written to the kernel.
func (f *frame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Sizeof(f.hdr)+uintptr(f.hdr.In))
}

// answer returns n bytes of the answer, starting at off.
func (f *frame) answer(off, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&f.output)), unsafe.Sizeof(f.output))[off:][:n]
}
