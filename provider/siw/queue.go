package siw

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file is correct:
//
// A queue is a mapping that the kernel has created: n elements of one struct of siw-abi.h,
// and after a CQ's elements a struct siw_cq_ctrl. mapQueue maps exactly their length, and
// the queue keeps its own copy of n, so that nothing in shared memory leads out of the
// mapping. The memory is not Go memory: the garbage collector neither moves nor frees it,
// and nothing stored there is a Go pointer. It begins at a page, so that the elements,
// whose sizes are multiples of 8, are aligned.

// A queue is an array of n elements of type E, which are used in turn. The kernel makes n a
// power of two, so that its counters may wrap.
type queue[E any] struct {
	mem  []byte
	mask uint32 // n-1
}

// maxElements is more than any queue of the driver has.
const maxElements = 1 << 24

// mapQueue maps a queue of n elements, and tail bytes after them. SIW_INVAL_UOBJ_KEY gets no
// special treatment: it is also a valid offset, and without an offset the kernel fails the verb.
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

// elem returns the element at a position. Positions increase without wrapping at n.
func (q *queue[E]) elem(position uint32) *E {
	var e E
	return (*E)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(q.mem)), uintptr(position&q.mask)*unsafe.Sizeof(e)))
}

// after returns the memory after the elements.
func (q *queue[E]) after() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(q.elem(q.mask)), unsafe.Sizeof(*q.elem(0)))
}

// The flags share an aligned word of 32 bits with the element's operation. load and publish
// access that word as a whole. They are sequentially consistent, and so full barriers
// between a store and a later load:
//
//   - The kernel sees all writes to an element before publish once it sees the flag.
//   - After load sees the flag, reads see all that the kernel wrote before it.
//   - A post publishes its request's flag and then loads the previous one. The kernel clears
//     the previous flag and then loads the next one. So either the post sees the cleared flag
//     and rings, or the kernel sees the new one: no request is left behind.
//   - A CQ that is armed and then polled misses no completion, for the same reason.
func load(word *uint32) uint32       { return atomic.LoadUint32(word) }
func publish(word *uint32, v uint32) { atomic.StoreUint32(word, v) }

// The words with the flags of the three kinds of elements.
func sendWord(e *uapi.SiwSqe) *uint32 { return (*uint32)(unsafe.Pointer(&e.Flags)) }
func recvWord(e *uapi.SiwRqe) *uint32 { return (*uint32)(unsafe.Pointer(&e.Flags)) }
func doneWord(e *uapi.SiwCqe) *uint32 { return (*uint32)(unsafe.Pointer(&e.Flags)) }

// word is the word of a work request: 16 bits of flags, the number of scatter/gather entries
// and the operation, in the byte order of amd64 and arm64.
func word(flags uapi.SiwWqeFlags, sges int, opcode uapi.SiwOpcode) uint32 {
	return uint32(flags) | uint32(sges)<<16 | uint32(opcode)<<24
}

const valid = uint32(uapi.SIW_WQE_VALID)

// inline returns the memory for a request's inline data: its entries from the second on.
func inline(e *uapi.SiwSqe) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&e.Sge[1])), maxInline)
}

const (
	maxSGE    = uapi.SIW_MAX_SGE
	maxInline = uapi.SIW_MAX_INLINE
)
