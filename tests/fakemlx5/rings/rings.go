// Package rings plays the hardware behind a fake mlx5 device, in the program
// that runs on it: it finds where a queue is, walks the work queue elements
// (WQEs) that were posted, and completes them. rings.h is the same for C.
//
// It knows the formats from the kernel's side (include/linux/mlx5/qp.h and
// device.h) and shares nothing with what it helps to test.
package rings

// Where is the ioctl that fills a Queue of which Kind is set: the one that the
// program made last.
const Where = 0x4d358000

// Kinds of queues.
const (
	CQ = iota + 1
	QP
	SRQ
)

// A Queue is where a driver has put a queue, struct ring_queue of rings.h. For
// a QP, Buf is the send queue.
type Queue struct {
	Kind       uint32
	Number     uint32
	UserIndex  uint32
	Stride     uint32
	Buf        uint64
	DB         uint64
	Recv       uint64
	Len        uint32
	RecvLen    uint32
	RecvStride uint32
	Flags      uint32 // a CQ was created with
}
