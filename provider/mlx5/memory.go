package mlx5

import (
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
)

// Why the unsafe code of this package is correct:
//
// Queues and doorbell records are separate mappings, page-aligned. The garbage collector
// neither moves nor frees them, and they contain no Go pointers. The slices of segments,
// completions, slots and bytes made here are views within a mapping's length. A segment has
// 16 bytes and a CQE 64, and both the start of the mapping and the end of a queue, where
// its slots begin, are multiples of these. The slices live as long as their queue. A queue
// is released only after the kernel has destroyed it and its CQs have forgotten it
// (cq.Forget, under the CQ's lock). Then no CQE refers to it any more. Register pointers
// (uar.go, clock.go) point into mapped pages that live as long as the context, which
// outlives its queues.

// A buffer is the memory of a queue.
type buffer []byte

func newBuffer(n int) (buffer, error) {
	page := os.Getpagesize()
	mem, err := ioctl.MapMemory((n + page - 1) &^ (page - 1))
	return buffer(mem), err
}

func (b *buffer) release() {
	if *b != nil {
		ioctl.Munmap(*b)
		*b = nil
	}
}

// addr returns the buffer's address for the kernel, or 0 if there is no buffer.
func (b buffer) addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// segments returns n bytes from off as segments.
func (b buffer) segments(off, n int) []wqe.Segment {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*wqe.Segment)(unsafe.Pointer(unsafe.SliceData(b[off:off+n]))), n/wqe.SegmentSize)
}

// wordsOf returns the first 4*n bytes of mapped memory as words. They begin at a multiple of
// 4 bytes in a page.
func wordsOf(b []byte, n int) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b[:4*n]))), n)
}

// slots and ids return the records of n requests, starting at off. Posting goroutines write
// them, and goroutines that poll the CQ read them. The device orders the two. The poster's
// stores precede those to the doorbell record (mmio.ToDevice) and to the register
// (mmio.FlushWrites). The device stores the CQE after it has seen these. The poller loads
// from here after it has loaded the CQE (mmio.FromDevice). This also holds on arm64, whose
// memory is multi-copy atomic: the device is an observer like the processors, and an
// observer of its store also sees all that the device saw before. A slot is reused only
// after done has counted its request.
//
// The records lie after a queue's WQEs, outside the Go heap, because the race detector
// doesn't see the device and would report a race. The kernel pins the queue's length for
// the device, which ends before the records.
func (b buffer) slots(off, n int) []slot {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(b[off:off+n*slotSize]))), n)
}

func (b buffer) ids(off, n int) []uint64 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b[off:off+n*idSize]))), n)
}

const (
	slotSize = int(unsafe.Sizeof(slot{}))
	idSize   = 8
)

// A window is the memory of one WQE, with the maximum length of any WQE. Only the segments
// up to the length of the queue's longest WQE exist. Writers stay within that length, and
// within maxWQESegments.
type window [maxSegments]wqe.Segment

const maxSegments = 64

// window returns the memory of the WQE that begins in a block at or before lastWhole.
func (s *sendQueue) window(block uint32) *window {
	return (*window)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.ring)), uintptr(block)*wqe.BlockSize))
}

// slot returns the slot of the WQE that begins in a block of the ring. There are as many
// slots as blocks.
func (s *sendQueue) slot(block uint32) *slot {
	return (*slot)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.slots)), uintptr(block)*uintptr(slotSize)))
}

// id returns the place of a receive's ID. There are as many IDs as entries.
func (r *recvQueue) id(at uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ids)), uintptr(at)*idSize))
}

// copyBytes copies n bytes between memory that doesn't overlap. Unlike copy, it calls no
// function.
func copyBytes(to, from unsafe.Pointer, n int) {
	type sixteen [2]uint64
	i := 0
	for last := n - 16; i <= last; i += 16 {
		*(*sixteen)(unsafe.Add(to, i)) = *(*sixteen)(unsafe.Add(from, i))
	}
	if n-i >= 8 {
		*(*uint64)(unsafe.Add(to, i)) = *(*uint64)(unsafe.Add(from, i))
		i += 8
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(to, i)) = *(*byte)(unsafe.Add(from, i))
	}
}

// window returns the memory of a receive's WQE. Only its list may be written.
func (r *recvQueue) window(at uint32) *window {
	return (*window)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ring)), uintptr(at)<<(r.shift&63)))
}

// bytes returns the memory for inline data whose header is in a segment.
func (w *window) bytes(segment uint32, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&w[segment&(maxSegments-1)]), wqe.InlineHeader)), n)
}

// headerBytes returns the memory for the header in the Ethernet segment, which is the
// second segment.
func (w *window) headerBytes(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&w[1]), wqe.EthHeaderOffset)), n)
}

// cqes returns the buffer as CQEs of 64 bytes, or as halves of CQEs of 128 bytes.
func (b buffer) cqes(n int) []wqe.CQE {
	return unsafe.Slice((*wqe.CQE)(unsafe.Pointer(unsafe.SliceData(b[:n*wqe.CQESize]))), n)
}

// cqeBytes returns a view of a CQE's bytes.
func cqeBytes(c *wqe.CQE) *[wqe.CQESize]byte { return (*[wqe.CQESize]byte)(unsafe.Pointer(c)) }

// memoryAt returns n bytes of this process's memory at an address in a work request. The
// device would read them if they weren't copied inline.
func memoryAt(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// A record is a doorbell record: two big-endian words in a cache line of their own. A QP's
// are the counters of the receive queue and the send queue, an SRQ's first word is its
// counter, and a CQ's are the consumer index and the arming.
type record [2]uint32

const (
	recvRecord = 0
	sendRecord = 1

	cqIndexRecord = 0
	cqArmRecord   = 1
)

const recordSize = 64

// records allocates doorbell records.
type records struct {
	mu    sync.Mutex
	pages []buffer
	free  []*record
}

func (r *records) take() (*record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) == 0 {
		page, err := newBuffer(1)
		if err != nil {
			return nil, err
		}
		r.pages = append(r.pages, page)
		for off := 0; off+recordSize <= len(page); off += recordSize {
			r.free = append(r.free, (*record)(unsafe.Pointer(&page[off])))
		}
	}
	rec := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	*rec = record{}
	return rec, nil
}

func (r *records) give(rec *record) {
	if rec == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, rec)
}

func (r *records) release() {
	for i := range r.pages {
		r.pages[i].release()
	}
	r.pages, r.free = nil, nil
}

func (r *record) addr() uint64 { return uint64(uintptr(unsafe.Pointer(r))) }

func swap32(v uint32) uint32 { return bits.ReverseBytes32(v) }

// roundUp returns the smallest power of two that is at least n.
func roundUp(n int) int { return 1 << bits.Len(uint(n-1)) }
