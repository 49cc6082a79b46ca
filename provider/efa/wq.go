package efa

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/ioctl"
)

// Why the unsafe code of this package is correct:
//
// Queues and doorbells are mappings that the kernel has created. The provider checks before use
// that each mapping is as long as the queue needs. Each index is masked, or compared with the
// queue's own length, which is in Go memory. So nothing in shared memory leads out of a mapping.
// The memory is not Go memory: the garbage collector neither moves nor frees it, and nothing
// stored there is a Go pointer. Mappings begin at pages, and the descriptors in them are at
// multiples of 8, so all words are aligned.
//
// A post's record for the poll is in memory from ioctl.MapMemory, because the device orders
// these accesses, and the race detector doesn't see devices. A post writes the record before
// the doorbell. The device writes the completion after it has seen the doorbell. So a poll
// that sees the completion sees the record.

// A slot is the record of a request for its completion.
type slot struct {
	id     uint64
	length uint32 // of an RDMA read
	opcode uint8  // of the completion of a send
	busy   bool   // the request has not completed
	_      [2]byte
}

const slotSize = int(unsafe.Sizeof(slot{}))

// requests are the records of a queue's outstanding requests. Each request has a number,
// which the device returns in the completion. The free numbers are in a ring.
//
// The posting goroutine takes numbers from one end of the ring, and the polling goroutine
// returns them to the other.
type requests struct {
	mem   []byte
	slots []slot
	free  []uint16 // a ring of numbers; its length is a power of two

	// generation is the QP's generation, in the upper bits of its request numbers. It
	// distinguishes the QP's completions from those of an earlier QP with the same number.
	generation uint16
	shift      uint8
	reused     bool // there was an earlier QP with the number

	next, limit uint32 // the post's positions in the ring: of the next number to take, and of the first that may not be free

	_     [64]byte
	given uint32 // the poll's position in the ring: of the next number to return
	_     [60]byte
}

// open allocates memory for n requests.
func (r *requests) open(n int, generation uint16) (err error) {
	ring := ceilPower(n)
	if r.mem, err = ioctl.MapMemory(n*slotSize + ring*2); err != nil {
		return err
	}
	p := unsafe.Pointer(unsafe.SliceData(r.mem))
	r.slots = unsafe.Slice((*slot)(p), n)
	r.free = unsafe.Slice((*uint16)(unsafe.Add(p, n*slotSize)), ring)
	r.shift = uint8(bits.Len(uint(ring - 1)))
	r.generation, r.reused = generation<<r.shift, generation > 1
	r.reset()
	return nil
}

func (r *requests) close() {
	if r.mem != nil {
		ioctl.Munmap(r.mem)
		r.mem, r.slots, r.free = nil, nil, nil
	}
}

// reset frees all numbers.
func (r *requests) reset() {
	for i := range r.slots {
		r.slots[i].busy = false
		r.free[i] = uint16(i)
	}
	r.next, r.limit = 0, uint32(len(r.slots))
	atomic.StoreUint32(&r.given, r.limit)
}

// room reports whether a number is free.
func (r *requests) room() bool {
	if r.next == r.limit {
		r.limit = atomic.LoadUint32(&r.given)
	}
	return r.next != r.limit
}

// take returns the slot of the next free number, and the number for the device. The caller has
// checked room.
func (r *requests) take() (*slot, uint16) {
	i := r.free[r.next&uint32(len(r.free)-1)]
	r.next++
	return &r.slots[i], i | r.generation
}

// find returns the slot of a number from the device, or nil if no request has it.
func (r *requests) find(number uint16) *slot {
	i := number &^ (^uint16(0) << r.shift)
	if number-i != r.generation || int(i) >= len(r.slots) || !r.slots[i].busy {
		return nil
	}
	return &r.slots[i]
}

// fromPrevious reports whether a request number belongs to the previous QP with this QP's number.
func (r *requests) fromPrevious(number uint16) bool {
	mask := ^uint16(0) << r.shift
	return r.reused && mask != 0 && number&mask == r.generation-1<<r.shift
}

// takeBack undoes the last n calls of take.
func (r *requests) takeBack(n uint32) {
	for range n {
		r.next--
		r.slots[r.free[r.next&uint32(len(r.free)-1)]].busy = false
	}
}

// give returns a number to the ring.
func (r *requests) give(number uint16) {
	i := number &^ (^uint16(0) << r.shift)
	r.slots[i].busy = false
	given := r.given
	r.free[given&uint32(len(r.free)-1)] = i
	memorder.StoreRelease(&r.given, given+1)
}

// ceilPower returns the least power of two that is not less than n, at least 1.
func ceilPower(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }
