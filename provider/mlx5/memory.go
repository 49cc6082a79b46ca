package mlx5

import (
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
)

// Why the unsafe code of this package holds:
//
// Queues and doorbell records are mappings of their own, page-aligned, which
// the garbage collector neither moves nor frees; nothing in them is a Go
// pointer. The slices made here of segments, completions, slots and bytes are
// views of them within their length; a segment is 16 bytes and a CQE 64, of which
// the mapping's start is a multiple, and so is where a queue ends and its slots
// begin. The slices go with the queue, which is released only after the kernel has
// destroyed it, and its CQs have forgotten it (cq.Forget, under the CQ's lock): a
// poll finds no CQE any more that leads here. Register pointers (uar.go, clock.go)
// point into mapped pages that live as long as the context, which outlives its
// queues.

// A buffer is memory of a queue.
type buffer []byte

func newBuffer(n int) (buffer, error) {
	page := os.Getpagesize()
	mem, err := ioctl.MapMemory((n + page - 1) &^ (page - 1))
	return buffer(mem), err
}

func (b *buffer) release() {
	if *b != nil {
		ioctl.FreeMemory(*b)
		*b = nil
	}
}

// addr is how the kernel names the buffer, 0 if there is none.
func (b buffer) addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// segments returns n bytes from off as segments.
func (b buffer) segments(off, n int) []wqe.Segment {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*wqe.Segment)(unsafe.Pointer(unsafe.SliceData(b[off:off+n]))), n/wqe.SegmentSize)
}

// slots and ids return what is kept of n requests, from off. Posters write it, and
// those who poll the CQ read it, which may be other goroutines. What orders the
// two is the device: the poster's stores come before the doorbell record's
// (mmio.ToDevice) and the register's (mmio.FlushWrites), the device stores the
// CQE after it has seen those, and the poller loads from here after the CQE
// (mmio.FromDevice). So on arm64, too: its memory is multi-copy atomic, and what
// the device, an observer like the other processors, has seen before it stored,
// they see after they have seen that. A place is written again only when its
// request was told to have completed, in done.
//
// It lies behind a queue's WQEs, outside the Go heap, since the race detector
// knows nothing of devices and would find both unordered. The kernel pins the
// queue for the device by its own length, which ends before.
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

// A window is the place of one WQE, as long as one can be. Only the segments up
// to the queue's longest WQE are there: who writes holds to that, and to one less
// (mostSegments) than would fit.
type window [maxSegments]wqe.Segment

const maxSegments = 64

// window returns the place of the WQE that begins in a block at or before
// lastWhole.
func (s *sendQueue) window(block uint32) *window {
	return (*window)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.ring)), uintptr(block)*wqe.BlockSize))
}

// slot returns what is kept of the WQE that begins in a block of the ring: there
// are as many slots as blocks.
func (s *sendQueue) slot(block uint32) *slot {
	return (*slot)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.slots)), uintptr(block)*uintptr(slotSize)))
}

// id returns what is kept of a receive: there are as many as places.
func (r *recvQueue) id(at uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ids)), uintptr(at)*idSize))
}

// copyBytes copies n bytes, which don't overlap with where they go. Unlike with
// copy, nothing is called.
func copyBytes(to, from unsafe.Pointer, n int) {
	type sixteen [2]uint64
	i := 0
	for ; n-i >= 16; i += 16 {
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

// window returns the place of a receive: its list is all that may be written.
func (r *recvQueue) window(at uint32) *window {
	return (*window)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ring)), uintptr(at)<<(r.shift&63)))
}

// bytes is the place of inline data whose head is in a segment.
func (w *window) bytes(segment uint32, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&w[segment&(maxSegments-1)]), wqe.InlineHeader)), n)
}

// headerBytes is the place of the header in the Ethernet segment, which is the
// second.
func (w *window) headerBytes(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&w[1]), wqe.EthHeaderOffset)), n)
}

// cqes returns the buffer as halves of CQEs of 128 bytes, or as CQEs of 64.
func (b buffer) cqes(n int) []wqe.CQE {
	return unsafe.Slice((*wqe.CQE)(unsafe.Pointer(unsafe.SliceData(b[:n*wqe.CQESize]))), n)
}

// cqeBytes is the view of a CQE's bytes.
func cqeBytes(c *wqe.CQE) *[wqe.CQESize]byte { return (*[wqe.CQESize]byte)(unsafe.Pointer(c)) }

// memoryAt is memory of this process that a work request of the program named,
// to which the device would have written n bytes itself had they not come in a
// CQE.
func memoryAt(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// A record is a doorbell record: two words, big-endian, in a cache line of
// their own. A QP has the receive queue's counter and the send queue's, an SRQ
// its counter, a CQ the consumer index and the arming.
type record [2]uint32

const (
	recvRecord = 0
	sendRecord = 1

	cqIndexRecord = 0
	cqArmRecord   = 1
)

const recordSize = 64

// records hands doorbell records out.
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

// roundUp returns the power of two from n on.
func roundUp(n int) int { return 1 << bits.Len(uint(n-1)) }
