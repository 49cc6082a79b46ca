// Package rings emulates the hardware of a fake mlx5 device, in the program that uses the
// device. It finds a queue, walks the posted work queue elements (WQEs), and completes
// them. rings.h is the same for C.
//
// The formats come from the kernel (include/linux/mlx5/qp.h and device.h). The package
// shares nothing with the code under test.
package rings

// Where is the ioctl that fills a Queue whose Kind is set with the program's last queue of
// that kind.
const Where = 0x4d358000

// Kinds of queues.
const (
	CQ = iota + 1
	QP
	SRQ
)

// A Queue is the location of a driver's queue, struct ring_queue of rings.h. For a QP, Buf
// is the send queue.
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
	Flags      uint32 // the flags that a CQ was created with
	UAR        uint32 // the number of its UAR: NoUAR if the kernel chose its register
	_          uint32
}

const (
	NoUAR = 1<<32 - 1
	// UARs are mapped one behind the other in the node's memory, from this one on.
	FirstUAR = 16
)
