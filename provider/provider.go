// Package provider is the contract between package verbs and the drivers'
// user-space halves ("providers", as in rdma-core): what a provider is asked
// for on the control path, and the queues that it gives for the fast path.
//
// Packages provider/rxe and provider/mlx5 are providers; every program has them.
// A provider for another driver may be part of any module. Its package calls
// [Register] in an init function, and a program links it by importing it:
//
//	import _ "example.com/siw"
//
// # Opening a device
//
// A [Provider] names the kernel's driver by its number (enum rdma_driver_id), and the
// versions of the driver's ABI that it speaks. Package verbs asks the kernel which
// driver a device has, and calls that provider's NewContext. Of a version that the
// provider doesn't speak the device isn't opened.
//
// # The control path
//
// The control path is shared. For each object verbs begins the command with the
// core's attributes; the provider adds the driver's part; verbs runs the
// command; and the provider adopts the answer, which is where queues are mapped:
//
//	q, err := ctx.NewQP(cmd, init)   // adds the driver's request and response, makes buffers
//	err = cmd.Run(file)
//	err = q.Adopt(created)           // reads the driver's response, maps the queues
//	…
//	q.Release()                      // unmaps; also after a failed Run or Adopt
//
// The driver's part is an [ioctl.DriverData]: the structs that the driver declares in
// <rdma/DRIVER-abi.h>, after what the core has in the same command. Package ioctl
// has it ready for the drivers that it knows; for another, the provider declares the
// structs itself, of integers and arrays of them, with all padding:
//
//	c.resp = ioctl.DriverData[ioctl.None, createQPResp]{Cmd: cmd.Cmd}.Out()
//
// A response is filled when Adopt is called, or what else follows the command, and
// gone when that returns. The command's other attributes, and the fields of its Req, are for verbs to fill. Attributes of
// the driver's own, other than its data, can be added only if package uapi has them:
// a command with an unknown attribute is not run.
//
// A New method that returns an error has released what it took, and its object isn't
// used. Otherwise a queue's Release comes last, whatever failed before; a Context has
// one only after an Adopt that went well. The handles that the
// kernel gave are verbs' to destroy: that comes before Release.
//
// # The fast path
//
// Posting and polling must allocate nothing, and should make no system call. A
// queue refuses with this package's errors, as they are: verbs knows them and adds
// the verb's name.
//
// Requests come checked, but for a [Short]: the QP is in a state that can send, its type
// has the operation, addresses and windows belong to the device. What depends on the queue is the
// provider's to check: room, the number of pieces, the length of inline data.
// Nothing that a call was given may be kept: neither a list, nor what it points to.
//
// # What runs at the same time
//
// Verbs serialises the calls on one queue, and nothing else. One lock is around
// PostSend, PostShort and TakeBack of a QP, one around PostRecv of a QP or an SRQ and
// what changes an SRQ, and one around all methods of a CQ. Modify, Moved, ECE and SetECE
// of a QP come one after the other; Moved to RESET, and of
// a raw packet's QP to RTR, also holds both locks of the QP. So a QP may be posted to while its CQ is polled, which usually reads what the post
// has kept of a request: there the provider itself keeps order. The methods of a Context
// run at any time, and so at the same time.
//
// # Compatibility
//
// The package is exported for those who write providers. It is outside the
// compatibility promise until v1.
package provider

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A Provider is the user-space half of one kernel driver.
type Provider struct {
	Name   string
	Driver uapi.RdmaDriverId

	// MinABI and MaxABI bound the driver's ABI version
	// (/sys/class/infiniband_verbs/uverbsN/abi_version) that the provider speaks.
	MinABI, MaxABI int

	// NewContext begins a context on an opened device.
	NewContext func(f *ioctl.File, cmd ioctl.GetContext) (Context, error)
}

// A Context makes a provider's part of the objects of one opened device.
type Context interface {
	// Adopt takes what GET_CONTEXT answered.
	Adopt() error

	NewPD(cmd ioctl.WriteAllocPd) (PD, error)
	NewCQ(cmd ioctl.CqCreate, init CQInit) (CQ, error)
	// NewSRQ may enlarge what the kernel is asked for.
	NewSRQ(cmd ioctl.SrqCreate, init *SRQInit) (SRQ, error)
	NewQP(cmd ioctl.QpCreate, init QPInit) (QP, error)
	NewAH(cmd ioctl.WriteCreateAh, init AHInit) (AH, error)

	// QueryDevice adds the provider's part, and returns
	// what reads it from the answer; nil if there is none.
	QueryDevice(cmd ioctl.WriteExQueryDevice) func() DeviceExtra

	// Clock reads the device's free-running counter, and tells whether there is
	// one.
	Clock() (cycles uint64, ok bool)

	// Release ends what Adopt mapped.
	Release()
}

// DeviceExtra is what only drivers say of a device, as struct
// mlx5_ib_query_device_resp has it.
type DeviceExtra struct {
	MaxTSO, TSOQPTs            uint32
	RSSFunctions               uint8
	RSSFields                  uint64
	MinPacing, MaxPacing       uint32 // kb/s
	PacingQPTs                 uint32
	CompressedCQEs, CQEFormats uint32 // of a session at most; MLX5DV_CQE_RES_FORMAT_*
}

// CQInit is what verbs knows of a completion queue before it is made.
type CQInit struct {
	CQE         uint32
	CQESize     uint32 // bytes of an entry; 0 for the provider's choice
	Compression uint8  // MLX5DV_CQE_RES_FORMAT_*, 0 for none
}

// QPInit is what verbs knows of a queue pair before it is made.
type QPInit struct {
	Type           uapi.IbUverbsQpType
	DC             DCType
	DCKey          uint64 // of a target
	Cap            uapi.IbUverbsQpCap
	SignalAll      bool // each send completes, whatever its flags
	SendCQ, RecvCQ CQ   // nil where the type has none
	SRQ            SRQ  // that it receives from, or nil
	MaxTSOHeader   uint32
	ScatterToCQE   bool // short messages may come in CQEs
	Sign           bool // work requests have signatures

	// What the device says that it has: atomic operations; checksums of raw packets
	// that it computes; and how many bytes of data it makes packets of at once.
	Atomics, Checksums bool
	MaxTSO             uint32
}

// A DCType is a side of dynamically connected transport, which is one of
// IB_UVERBS_QPT_DRIVER.
type DCType uint8

const (
	NotDC DCType = iota
	DCInitiator
	DCTarget
)

// SRQInit is what verbs knows of a shared receive queue before it is made.
type SRQInit struct {
	MaxWR, MaxSGE uint32
	XRC           bool
}

// A PD is a protection domain.
type PD interface {
	// Adopt takes what ALLOC_PD answered.
	Adopt() error
}

// A QP is the pair of work queues.
type QP interface {
	// Adopt takes what QP_CREATE answered: the kernel's handle and number, and
	// the capabilities that it granted, which the provider may correct.
	Adopt(handle, qpn uint32, granted *uapi.IbUverbsQpCap) error

	// PostSend encodes work requests. Unless more will follow, it shows them to
	// the device, together with those encoded before of which more followed. If an
	// error comes with n, wrs[n] is the one refused, and those before it were
	// posted; if n is len(wrs), the device could not be told. If n is 0, it was
	// not told of those encoded before either; without wrs, only those are shown.
	// PostSend must not keep a reference to wrs, nor to anything that they point to.
	PostSend(wrs []SendWR, more bool) (n int, err error)

	// TakeBack forgets the requests that the device was not told of.
	TakeBack()

	// PostRecv is PostSend for the receive queue. It refuses with ErrRecvTooLong
	// what has 4 GiB or more in all its pieces.
	PostRecv(wrs []RecvWR) (n int, err error)

	// ECE returns what the device has of enhanced connection establishment: its
	// vendor, 0 if the provider has none of it, and options. SetECE has the next
	// Modify ask for others, and tells whether the device has that.
	ECE() (vendor, options uint32)
	SetECE(options uint32) bool

	// Modify adds the provider's part, and tells whether it has one: a
	// WriteModifyQp does otherwise.
	Modify(cmd ioctl.WriteExModifyQp, to uapi.IbQpState) bool

	// Moved follows a change of state, and returns the number that the QP has from
	// then on. That to RESET empties the queues.
	Moved(to uapi.IbQpState) (qpn uint32)

	// Release unmaps the queues.
	Release()
}

// A ShortPoster is a QP that has a faster way for requests of the commonest kinds.
// A QP need not be one.
type ShortPoster interface {
	// PostShort is PostSend of all the requests, or of none. It has nothing to tell
	// but that it went well, and may refuse anything: PostSend then says why, or
	// takes it.
	PostShort(list []Short, more bool) bool
}

// An SRQ is a shared receive queue.
type SRQ interface {
	// Adopt takes what SRQ_CREATE answered, as a QP's does.
	Adopt(handle uint32, granted *SRQInit) error
	PostRecv(wrs []RecvWR) (n int, err error)

	// Modify adds the provider's part. Remap follows it if it
	// resized the queue.
	Modify(cmd ioctl.WriteModifySrq) error
	Remap() error

	Release()
}

// A CQ is a completion queue.
type CQ interface {
	Adopt(handle uint32) error

	// Poll moves up to len(wc) completions into wc and returns their number, or
	// an error if there are none before it: such as a *CQEError. It must not keep a
	// reference to wc.
	Poll(wc []WC) (int, error)
	// PollTimed is Poll that also says at which count of the device's clock each
	// was completed; cycles is as long as wc.
	PollTimed(wc []WC, cycles []uint64) (int, error)

	// Arm asks for an event at the next completion, or only at the next
	// solicited or failed one. Events is how many have come so far.
	Arm(solicitedOnly bool, events uint32) error

	// Forget drops the completions of a QP that was moved to RESET or destroyed.
	// The caller serialises it with Poll.
	Forget(qp QP)
	// ForgetSRQ is Forget for an XRC SRQ that was destroyed.
	ForgetSRQ(srq SRQ)

	// Resize adds the provider's part, for cqe completions, and
	// Remap follows it; completions that weren't polled are kept.
	Resize(cmd ioctl.WriteResizeCq, cqe uint32) error
	Remap() error

	Release()
}

// An AH makes an address handle.
type AH interface {
	// Local tells that the kernel needn't be asked.
	Local() bool
	// Adopt fills in what work requests carry, from what CREATE_AH answered.
	Adopt(ref *AHRef) error
}

// AHInit is what verbs knows of an address handle before it is made.
type AHInit struct {
	Attr uapi.IbUverbsAhAttr
	// Link asks what of the address's port counts.
	Link func() (Link, error)
}

// A Link is a port, and the source GID of an address.
type Link struct {
	Ethernet    bool
	RoCEV2      bool // on Ethernet, the GID's type
	GRHRequired bool // all addresses are global
}
