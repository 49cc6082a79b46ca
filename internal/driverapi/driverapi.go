// Package driverapi has the types by which packages for a driver's own verbs, such as mlx5dv, reach
// the internals of package verbs and of the providers: the device's file, the kernel's handles, and
// the memory of queues. Package driververbs, above package verbs, has the functions.
package driverapi

import (
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A Call is a verb in progress. It holds the objects passed to Begin, so that none of them
// can be closed meanwhile.
type Call struct {
	File      *ioctl.File
	Device    any      // the provider's context
	Handles   []uint32 // the kernel's handles of the objects
	Providers []any    // the provider's parts of the objects, nil for an object without one; for an AH, its *provider.AHRef

	Fail  func(object string, err error) error // returns the verb's error
	Done  func()                               // ends the call
	Adopt func(Made) Object                    // makes the call's objects the parents of a new one
}

// Made is a new object in the kernel. Destroy destroys it. Then Release frees the rest. Both
// are parts of the verb Op.
type Made struct {
	Name    string // the name of its kind, such as "DEVX object"
	Op      string // the verb that destroys it
	Handle  uint32
	Destroy func(f *ioctl.File, handle uint32) error
	Release func()
}

// An Object is an object that another package has created on a Device. Device.Close closes it, too.
type Object interface {
	Handle() uint32
	Close() error
}

// Verbs is package verbs' implementation of driververbs.Verbs, whose types this package can't name.
var Verbs any

// Providers describe their queues with these types, for programs and devices that post and
// poll directly. Addresses are of memory that the adapter and the program share. The memory
// is valid until the object is closed.

// An MLX5QP describes the queues of an mlx5 QP.
type MLX5QP struct {
	Record                   unsafe.Pointer // two 32-bit words, in network byte order: the counters of receives, and of sends
	Sends, Recvs             unsafe.Pointer // the queues
	SendBlocks, Receives     uint32
	ReceiveSize              uint32 // bytes
	Register                 unsafe.Pointer
	RegisterSize, UAR, Index uint32
}

// An MLX5CQ describes an mlx5 CQ.
type MLX5CQ struct {
	Record       unsafe.Pointer // two 32-bit words, in network byte order: the consumer index, and the arming
	CQEs         unsafe.Pointer
	Count, Size  uint32
	Number       uint32
	ArmRegister  unsafe.Pointer
	ConsumerNext uint32
}

// An MLX5SRQ describes an mlx5 SRQ.
type MLX5SRQ struct {
	Record     unsafe.Pointer
	WQEs       unsafe.Pointer
	Count      uint32
	Size       uint32 // bytes
	Head, Tail uint32
	Number     uint32
}

// MLX5QPOptions are package mlx5dv's options of a queue pair.
type MLX5QPOptions struct {
	Streams    *MLX5Streams // of a DCI, or nil
	OutOfOrder bool
	Credits    bool // credits count packets, in place of messages
}

// MLX5Streams are the streams of a DCI.
type MLX5Streams struct{ LogConcurrent, LogErrored uint8 }

// MLX5CQOptions are package mlx5dv's options of a CQ.
type MLX5CQOptions struct{ Pad bool }

// Package efadv passes options to the efa provider, and gets descriptions of queues, with
// these types.

// An EFAQP has the options of an SRD queue pair.
type EFAQP struct {
	UnsolicitedWriteRecv, InlineWrite bool
	ServiceLevel                      uint8
}

// An EFADevice has the driver's report about a device.
type EFADevice struct {
	Context   uapi.EfaIbvAllocUcontextResp
	Device    uapi.EfaIbvExQueryDeviceResp
	MaxInline int
}

// An EFAQueue describes a queue of efa.
type EFAQueue struct {
	Addr        unsafe.Pointer
	Count, Size uint32
	Doorbell    unsafe.Pointer
	MaxBatch    uint32
}

// An EFAQPMemory describes the queues of an efa QP.
type EFAQPMemory struct{ Sends, Recvs EFAQueue }

// An EFACQMemory describes an efa CQ.
type EFACQMemory struct {
	Addr               unsafe.Pointer
	Rings, Count, Size uint32
	Doorbell           unsafe.Pointer
}
