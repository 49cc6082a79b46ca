package efadv

import (
	"fmt"
	"io"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/verbs"
)

// The addresses of queues are of memory that the program and the adapter share. They are valid
// until the object is closed. Code that posts or polls there directly, such as a GPU kernel, must
// start with a new object and use it exclusively: the object's methods that post and poll must
// not be called. All fields are in little-endian byte order.

// A Queue is a ring of requests (struct efadv_wq_attr).
type Queue struct {
	Addr  unsafe.Pointer // nil if there is no such queue
	Count uint32         // entries, a power of two
	Size  uint32         // bytes of an entry

	// Doorbell is a word of 32 bits. To ring it, write the number of entries written since the
	// queue's beginning. The device uses the lower 16 bits.
	Doorbell unsafe.Pointer
	MaxBatch uint32 // the maximum number of entries that one doorbell may announce
}

// QPMemory has the addresses of a QP's queues.
type QPMemory struct {
	Sends Queue // in the device's memory, which can't be read
	Recvs Queue // of buffers: a receive takes an entry for each
}

// QPQueues returns the addresses of the QP's queues (efadv_query_qp_wqs).
func QPQueues(qp *verbs.QP) (QPMemory, error) {
	m, err := memory[driverapi.EFAQPMemory]("query QP's memory", qp)
	return QPMemory{Queue(m.Sends), Queue(m.Recvs)}, err
}

// CQMemory has the address of a CQ's rings (struct efadv_cq_attr).
type CQMemory struct {
	Addr  unsafe.Pointer // the first of the rings, which follow one another
	Rings uint32         // the device fills one for each queue
	Count uint32         // completions of a ring, a power of two
	Size  uint32         // bytes of a completion

	// Doorbell is a word of 32 bits. Writing the number of completions consumed to it arms the
	// CQ. It is nil if the CQ has no events.
	Doorbell unsafe.Pointer
}

// CQQueue returns the address of the CQ's rings (efadv_query_cq).
func CQQueue(cq *verbs.CQ) (CQMemory, error) {
	m, err := memory[driverapi.EFACQMemory]("query CQ's memory", cq)
	return CQMemory(m), err
}

// memory queries the provider's part of an object.
func memory[T any](op string, object io.Closer) (m T, err error) {
	call, err := begin(op, object)
	if err != nil {
		return m, err
	}
	defer call.Done()
	q, ok := call.Providers[0].(interface{ Describe() T })
	if !ok {
		return m, call.Fail("", fmt.Errorf("%w: the object has no queues", verbs.ErrInvalid))
	}
	return q.Describe(), nil
}
