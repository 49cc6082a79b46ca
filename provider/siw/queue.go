package siw

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file holds:
//
// A queue is a mapping that the kernel has created: n elements of one struct of siw-abi.h,
// and behind a CQ's a struct siw_cq_ctrl. mapQueue asks for exactly as much as these need,
// and the queue keeps its own copy of n, so that nothing in shared memory leads out of the
// mapping. The memory is not Go memory: the garbage collector neither moves nor frees it,
// and nothing stored there is a Go pointer. It begins at a page, so that the elements,
// whose sizes are multiples of 8, are aligned.

// A queue is an array of elements of type E, which are used in turn. The kernel makes n a
// power of two, so that its counters may wrap.
type queue[E any] struct {
	mem  []byte
	mask uint32 // n-1
}

// maxElements is more than any queue of the driver has.
const maxElements = 1 << 24

// mapQueue maps a queue of n elements, and what follows them. The key SIW_INVAL_UOBJ_KEY is
// like any other: it is also a valid offset, and the kernel fails the verb if it has none.
func mapQueue[E any](f *ioctl.File, key uint64, n uint32, tail uintptr) (queue[E], error) {
	if n == 0 || n > maxElements || bits.OnesCount32(n) != 1 {
		return queue[E]{}, fmt.Errorf("siw: the kernel's queue has %d elements", n)
	}
	var e E
	mem, err := f.Mmap(key, int(uintptr(n)*unsafe.Sizeof(e)+tail))
	if err != nil {
		return queue[E]{}, err
	}
	return queue[E]{mem, n - 1}, nil
}

func (q *queue[E]) unmap() {
	if q.mem != nil {
		ioctl.Munmap(q.mem)
		*q = queue[E]{}
	}
}

// elem returns the element of a position, which counts on without wrapping at n.
func (q *queue[E]) elem(position uint32) *E {
	var e E
	return (*E)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(q.mem)), uintptr(position&q.mask)*unsafe.Sizeof(e)))
}

// after returns what follows the elements.
func (q *queue[E]) after() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(q.elem(q.mask)), unsafe.Sizeof(*q.elem(0)))
}

// The flags share an aligned word of 32 bits with what the element is about. load and
// publish access that word as a whole. They are sequentially consistent, and so full
// barriers between a store and a later load:
//
//   - What was written to an element before publish is there when the kernel sees the flag.
//   - What is read after load sees the flag was written before it.
//   - Of a request's flag that is published and the flag of the request before it, which is
//     loaded then, and of the kernel's clearing of that flag and its look at the next one, at
//     least one side sees what the other has done. So no request is left lying.
//   - The same holds for a CQ that is armed and then polled.
func load(word *uint32) uint32       { return atomic.LoadUint32(word) }
func publish(word *uint32, v uint32) { atomic.StoreUint32(word, v) }

// The words of the three kinds of elements.
func sendWord(e *uapi.SiwSqe) *uint32 { return (*uint32)(unsafe.Pointer(&e.Flags)) }
func recvWord(e *uapi.SiwRqe) *uint32 { return (*uint32)(unsafe.Pointer(&e.Flags)) }
func doneWord(e *uapi.SiwCqe) *uint32 { return (*uint32)(unsafe.Pointer(&e.Flags)) }

// word is the word of a work request: 16 bits of flags, the number of scatter/gather entries
// and the operation, in the byte order of amd64 and arm64.
func word(flags uapi.SiwWqeFlags, sges int, opcode uapi.SiwOpcode) uint32 {
	return uint32(flags) | uint32(sges)<<16 | uint32(opcode)<<24
}

const valid = uint32(uapi.SIW_WQE_VALID)

// inline is the room for a request's inline data: its entries from the second on.
func inline(e *uapi.SiwSqe) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&e.Sge[1])), maxInline)
}

const (
	maxSGE    = uapi.SIW_MAX_SGE
	maxInline = uapi.SIW_MAX_INLINE
)
