package rxe

import (
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file is correct:
//
// A queue is a mapping that the kernel has created: struct rxe_queue_buf, then
// index_mask+1 elements of 1<<log2_elem_size bytes (rdma_user_rxe.h). mapQueue checks
// that the header and the elements lie inside the mapping, and that an element is large
// enough for what the provider writes to it. It keeps private copies of the two numbers,
// so later changes in shared memory can't lead out of the mapping. Indices are masked
// before use. The memory is not Go memory: the garbage collector neither moves nor frees
// it, and nothing stored there is a Go pointer.

// A queue is a ring shared with the kernel. One side advances the producer index, the
// other the consumer index. The kernel reads an index with acquire semantics and writes
// it with release semantics, and so do the atomics here.
type queue struct {
	mem  []byte
	buf  *uapi.RxeQueueBuf
	data unsafe.Pointer
	mask uint32
	log2 uint32
}

// mapQueue maps the ring that mi describes. An element must have at least minElem bytes.
func mapQueue(f *ioctl.File, mi uapi.Mminfo, minElem uintptr) (queue, error) {
	mem, err := f.Mmap(mi.Offset, int(mi.Size))
	if err != nil {
		return queue{}, err
	}
	q, err := newQueue(mem, minElem)
	if err != nil {
		ioctl.Munmap(mem)
	}
	return q, err
}

// newQueue returns a queue in memory that begins with a rxe_queue_buf.
func newQueue(mem []byte, minElem uintptr) (queue, error) {
	if len(mem) < uapi.RxeQueueBufDataOffset {
		return queue{}, errBadQueue
	}
	q := queue{mem: mem, buf: (*uapi.RxeQueueBuf)(unsafe.Pointer(&mem[0]))}
	q.mask, q.log2 = q.buf.IndexMask, q.buf.Log2ElemSize
	if q.log2 > 31 || q.mask&(q.mask+1) != 0 || uintptr(1)<<q.log2 < minElem ||
		(uint64(q.mask)+1)<<q.log2 > uint64(len(mem)-uapi.RxeQueueBufDataOffset) {
		return queue{}, errBadQueue
	}
	q.data = unsafe.Pointer(&mem[uapi.RxeQueueBufDataOffset])
	return q, nil
}

func (q *queue) unmap() {
	if q.mem != nil {
		ioctl.Munmap(q.mem)
		*q = queue{}
	}
}

// elem returns the element at an index.
func (q *queue) elem(index uint32) unsafe.Pointer {
	return unsafe.Add(q.data, uintptr(index&q.mask)<<q.log2)
}

func (q *queue) producer() uint32 { return atomic.LoadUint32(&q.buf.ProducerIndex) }
func (q *queue) consumer() uint32 { return atomic.LoadUint32(&q.buf.ConsumerIndex) }

// refusal returns the error for a put while the kernel's index is consumer.
func (q *queue) refusal(consumer uint32) error {
	if consumer > q.mask {
		return errBadIndex
	}
	return provider.ErrQueueFull
}

func (q *queue) setProducer(i uint32) { atomic.StoreUint32(&q.buf.ProducerIndex, i&q.mask) }
func (q *queue) setConsumer(i uint32) { atomic.StoreUint32(&q.buf.ConsumerIndex, i&q.mask) }

func (q *queue) sendWQE(index uint32) *uapi.RxeSendWqe { return (*uapi.RxeSendWqe)(q.elem(index)) }
func (q *queue) recvWQE(index uint32) *uapi.RxeRecvWqe { return (*uapi.RxeRecvWqe)(q.elem(index)) }

const (
	sgeSize      = unsafe.Sizeof(uapi.RxeSge{})
	sendWQESize  = unsafe.Sizeof(uapi.RxeSendWqe{})
	recvWQESize  = unsafe.Sizeof(uapi.RxeRecvWqe{})
	completeSize = unsafe.Sizeof(uapi.IbUverbsWc{})
)

// sendSGEs and sendInline are two views of the memory after a send WQE, and recvSGEs of
// that after a receive WQE. The caller has checked the length against the queue's
// capabilities, and Adopt these against the element size.
func sendSGEs(w *uapi.RxeSendWqe, n int) []uapi.RxeSge {
	return unsafe.Slice((*uapi.RxeSge)(unsafe.Add(unsafe.Pointer(w), sendWQESize)), n)
}

func sendInline(w *uapi.RxeSendWqe, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), sendWQESize)), n)
}

func recvSGEs(w *uapi.RxeRecvWqe, n int) []uapi.RxeSge {
	return unsafe.Slice((*uapi.RxeSge)(unsafe.Add(unsafe.Pointer(w), recvWQESize)), n)
}
