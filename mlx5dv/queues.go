package mlx5dv

import (
	"io"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/verbs"
)

// The addresses of queues are of memory that the program and the adapter share. They are valid
// until the object is closed, or a CQ resized. Code that posts or polls there directly, such
// as a GPU kernel, must use the object exclusively: the object's methods that post and poll
// must not be called any more. All fields are in network byte order.

// A Queue is a ring of entries of a fixed size.
type Queue struct {
	Addr  unsafe.Pointer // nil if there is no such queue
	Count uint32         // entries, a power of two
	Size  uint32         // bytes of an entry
}

// QPMemory has the addresses of a QP's queues (struct mlx5dv_qp).
type QPMemory struct {
	// Record is the doorbell record: the counters of receives and sends, of 4 bytes each.
	Record unsafe.Pointer

	Sends Queue // of blocks of 64 bytes
	Recvs Queue // of receives

	// Register is the doorbell register, with two buffers of RegisterSize bytes that are
	// used in turn. If RegisterSize is 0, the register takes only the first 8 bytes of a
	// request. Other QPs may share the register if the program has made more than eight QPs
	// without SingleOwner.
	Register     unsafe.Pointer
	RegisterSize uint32 // in bytes: see Register
	UAR          uint32 // the number of the register's page

	UserIndex uint32 // identifies the QP in completions
}

// QPQueues returns the addresses of the QP's queues (mlx5dv_init_obj with MLX5DV_OBJ_QP).
func QPQueues(qp *verbs.QP) (QPMemory, error) {
	q, err := raw[driverapi.MLX5QP]("query QP's memory", qp)
	if err != nil {
		return QPMemory{}, err
	}
	const block = 64
	m := QPMemory{
		Record: q.Record, Sends: Queue{q.Sends, q.SendBlocks, block}, Recvs: Queue{q.Recvs, q.Receives, q.ReceiveSize},
		Register: q.Register, RegisterSize: q.RegisterSize, UAR: q.UAR, UserIndex: q.Index,
	}
	if q.Sends == nil {
		m.Sends = Queue{}
	}
	return m, nil
}

// CQMemory has the address of a CQ's queue (struct mlx5dv_cq).
type CQMemory struct {
	// Record is the doorbell record: the consumer index and the arming, of 4 bytes each.
	Record unsafe.Pointer

	CQEs Queue  // of completions
	Next uint32 // the index of the next completion, counted as the consumer index, without wrapping

	Number   uint32         // of the CQ in the adapter
	Register unsafe.Pointer // by which CQs are armed
}

// CQQueue returns the address of the CQ's queue (mlx5dv_init_obj with MLX5DV_OBJ_CQ). From then
// on, when a QP on the CQ is closed or moves to QPReset, the QP's completions stay in the CQ.
func CQQueue(cq *verbs.CQ) (CQMemory, error) {
	q, err := raw[driverapi.MLX5CQ]("query CQ's memory", cq)
	if err != nil {
		return CQMemory{}, err
	}
	return CQMemory{
		Record: q.Record, CQEs: Queue{q.CQEs, q.Count, q.Size}, Next: q.ConsumerNext, Number: q.Number, Register: q.ArmRegister,
	}, nil
}

// SRQMemory has the address of an SRQ's queue (struct mlx5dv_srq).
type SRQMemory struct {
	Record unsafe.Pointer // the doorbell record: the counter of receives, of 4 bytes

	WQEs       Queue  // of receives
	Head, Tail uint32 // the first and the last entry of the list of free entries

	Number uint32 // of the SRQ in the adapter
}

// SRQQueue returns the address of the SRQ's queue (mlx5dv_init_obj with MLX5DV_OBJ_SRQ).
func SRQQueue(srq *verbs.SRQ) (SRQMemory, error) {
	q, err := raw[driverapi.MLX5SRQ]("query SRQ's memory", srq)
	if err != nil {
		return SRQMemory{}, err
	}
	return SRQMemory{Record: q.Record, WQEs: Queue{q.WQEs, q.Count, q.Size}, Head: q.Head, Tail: q.Tail, Number: q.Number}, nil
}

// raw queries the provider about a queue.
func raw[T any](op string, object io.Closer) (T, error) {
	var none T
	call, err := begin(op, object)
	if err != nil {
		return none, err
	}
	defer call.Done()
	q, ok := call.Providers[0].(interface{ Describe() T })
	if !ok {
		return none, invalid(op, "the object has no queues")
	}
	return q.Describe(), nil
}
