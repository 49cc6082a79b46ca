// Package provider is the contract between package verbs and the user-space halves of
// drivers ("providers", as in rdma-core). A provider takes part in the control path, and
// implements the queues of the fast path.
//
// The providers provider/rxe and provider/mlx5 are part of every program. A program imports
// provider/siw and provider/efa if it needs them. A provider for another driver may be in
// any module. Its package calls [Register] in an init function:
//
//	func init() {
//		provider.Register(&provider.Provider{
//			Name: "erdma", Driver: uapi.RDMA_DRIVER_ERDMA,
//			MinABI: 1, MaxABI: 1, NewContext: newContext,
//		})
//	}
//
// A program links it by importing it:
//
//	import _ "example.com/erdma"
//
// provider/rxe and provider/siw are small examples.
//
// # Opening a device
//
// A [Provider] has the kernel driver's number (enum rdma_driver_id), and the versions of
// the driver's ABI that it supports. Package verbs asks the kernel which driver a device
// has, and calls that provider's NewContext. It refuses to open a device whose ABI version
// the provider doesn't support.
//
// # The control path
//
// Verbs and the provider share the control path. For each object, verbs begins the command
// with the core's attributes. The provider adds the driver's part. Then verbs runs the
// command, and the provider adopts the response and maps the queues:
//
//	q, err := ctx.NewQP(cmd, &init)  // adds the driver's request and response, makes buffers
//	err = cmd.Run(file)
//	err = q.Adopt(created)           // reads the driver's response, maps the queues
//	…
//	q.Release()                      // unmaps; also after a failed Run or Adopt
//
// The driver's part is an [ioctl.DriverData]: the structs that the driver declares in
// <rdma/DRIVER-abi.h>, which follow the core's in the same command. Package ioctl has
// methods for the drivers that it knows. For another driver, the provider declares the
// structs itself. They consist of integers and arrays of integers, with explicit padding:
//
//	c.resp = ioctl.DriverData[ioctl.None, createQPResp]{Cmd: cmd.Cmd}.Out()
//
// The response is valid only during Adopt, or another method that follows the command. Verbs fills in
// the command's other attributes, and the fields of its Req, from the New method's init: there, a
// provider whose device has only certain queue lengths increases the sizes. Other attributes of the
// driver can be added only if package uapi has them: a command with an unknown attribute is not run.
//
// A New method that returns an error must release everything it has allocated. Its object
// isn't used. After success, verbs eventually calls the queue's Release, even if a later step
// fails. The exception is a queue that Adopt has refused and the kernel fails to destroy: the
// device may write to its memory. Verbs calls a Context's Release only if Adopt has
// succeeded. It destroys the kernel's objects before it calls Release.
//
// # The fast path
//
// Posts and polls must not allocate, and should make no system call. Queues return this
// package's errors unchanged: verbs recognises them, and adds the verb's name.
//
// Verbs checks each request, except a [Short]: the QP's state permits sends, its type has
// the operation, and addresses and windows belong to the device. The provider checks the
// limits of the queue: room, the number of scatter/gather entries, and the length of inline
// data. A call must not keep its arguments, nor anything they point to.
//
// # What runs at the same time
//
// Verbs serialises the calls on one queue, and nothing else:
//
//   - One lock covers PostSend, PostShort and TakeBack of a QP.
//   - One lock covers PostRecv of a QP, or PostRecv and the methods that change an SRQ.
//   - One lock covers all methods of a CQ.
//   - Modify, Moved, ECE and SetECE of a QP are serialised. Moved to RESET, and Moved of a
//     raw packet QP to RTR, also hold both locks of the QP.
//
// So a QP may be posted to while its CQ is polled. A poll usually reads the post's record
// of a request; the provider must order these accesses itself. The methods of a Context may
// be called at any time, even concurrently.
//
// # Compatibility
//
// The package is exported for authors of providers. It is outside the compatibility promise
// until v1.
package provider

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A Provider is the user-space half of one kernel driver.
type Provider struct {
	Name   string
	Driver uapi.RdmaDriverId

	// MinABI and MaxABI are the lowest and highest of the driver's ABI versions that the
	// provider supports (/sys/class/infiniband_verbs/uverbsN/abi_version).
	MinABI, MaxABI int

	// NewContext creates a context on an opened device.
	NewContext func(f *ioctl.File, cmd ioctl.GetContext) (Context, error)

	// ImportContext is like NewContext, for a device that another process has opened. It is
	// nil if the driver doesn't support import.
	ImportContext func(f *ioctl.File, cmd ioctl.QueryContext) (Context, error)
}

// A Context makes the provider's parts of the objects on one opened device.
type Context interface {
	// Adopt processes the response to GET_CONTEXT.
	Adopt() error

	NewPD(cmd ioctl.WriteAllocPd) (PD, error)
	// NewCQ, NewSRQ and NewQP may increase the sizes in init.
	NewCQ(cmd ioctl.CqCreate, init *CQInit) (CQ, error)
	NewSRQ(cmd ioctl.SrqCreate, init *SRQInit) (SRQ, error)
	NewQP(cmd ioctl.QpCreate, init *QPInit) (QP, error)
	NewAH(cmd ioctl.WriteCreateAh, init AHInit) (AH, error)

	// QueryDevice adds the provider's part. It returns a function that reads that part of
	// the response, or nil if there is none.
	QueryDevice(cmd ioctl.WriteExQueryDevice) func() DeviceExtra

	// Clock reads the device's free-running counter, and reports whether there is one.
	Clock() (cycles uint64, ok bool)

	// Release unmaps the memory that Adopt has mapped.
	Release()
}

// An Importer is a Context that can import objects of other processes. Contexts need not
// implement it.
type Importer interface {
	// ImportPD checks that there is a PD with this handle.
	ImportPD(handle uint32) error
	// ImportDM returns a DM by its handle, as after Adopt, and its length.
	ImportDM(handle uint32) (dm DM, n uint64, err error)
}

// A QPOpener is a Context of a device with XRC. Contexts need not implement it.
type QPOpener interface {
	// OpenQP returns the provider's part of an existing XRC target QP. Adopt isn't called for it.
	OpenQP(qpn uint32) QP
}

// An MRRegistrar is a Context whose driver extends the registration of memory regions.
// Contexts need not implement it.
type MRRegistrar interface {
	// RegMR adds the provider's part.
	RegMR(cmd ioctl.WriteRegMr) error
}

// A NullKeyer is a Context of a device that may have null MRs. Contexts need not implement
// it.
type NullKeyer interface {
	// NullKey returns the key of memory that drops writes and reads as zeros, and reports
	// whether the device has such a key.
	NullKey() (lkey uint32, ok bool)
}

// DeviceMemory is a Context of a device with memory that programs may use. Contexts need not
// implement it.
type DeviceMemory interface {
	// NewDM adds the provider's part, for memory of n bytes.
	NewDM(cmd ioctl.DmAlloc, n int) (DM, error)
}

// A WQMaker is a Context of a device with receive queues that need no QPs. Contexts need
// not implement it.
type WQMaker interface {
	// NewWQ returns ErrNoWQ if this device has none.
	NewWQ(cmd ioctl.WqCreate, init WQInit) (WQ, error)
	// NewTable adds the provider's part to a table of such queues.
	NewTable(cmd ioctl.WriteExCreateRwqIndTbl)
	// NewRSSQP returns a QP that spreads packets over such a table. Verbs calls only its
	// Adopt and Release.
	NewRSSQP(cmd ioctl.QpCreate, init RSSInit) (QP, error)
}

// A FlowCounter is a Context of a device that counts the packets of flows. Contexts need not
// implement it.
type FlowCounter interface {
	// CountFlow adds the provider's part to a flow with counters. points are the quantities
	// that they count (enum ib_counters_description). Verbs calls the returned function
	// after the command.
	CountFlow(cmd ioctl.WriteExCreateFlow, points []uint32) (func(), error)
}

// A CompCounterMaker is a Context of a device that keeps completion counters in memory of the
// program. Contexts need not implement it.
type CompCounterMaker interface {
	// NewCompCounter adds the provider's part.
	NewCompCounter(cmd ioctl.CompCntrCreate) (CompCounter, error)
}

// A CompCounter is a completion counter in memory of the program. Read may be called concurrently.
type CompCounter interface {
	// Read returns how many operations have succeeded, or how many have failed.
	Read(failed bool) uint64

	// Release frees the memory, even after a failed command.
	Release()
}

// WQInit has the parameters of a work queue to create.
type WQInit struct {
	MaxWR, MaxSGE uint32
	CQ            CQ
}

// RSSInit has the parameters of a QP that spreads packets over a table of work queues.
type RSSInit struct {
	Function uint8  // MLX5_RX_HASH_FUNC_*
	Fields   uint64 // MLX5_RX_HASH_*
	Key      []byte // up to 128 bytes
}

// A WQ is a receive queue without a QP. One lock covers PostRecv and Reset.
type WQ interface {
	Adopt(handle, number uint32, granted *WQInit) error
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify adds the provider's part.
	Modify(cmd ioctl.WriteExModifyWq)
	// Reset empties the queue, which the device no longer uses. Verbs then calls the CQ's ForgetWQ.
	Reset()
	Release()
}

// A WQForgetter is a CQ of a WQMaker.
type WQForgetter interface {
	// ForgetWQ is like CQ.Forget, for a WQ.
	ForgetWQ(wq WQ)
}

// A DM is memory of the device.
type DM interface {
	// Adopt processes the response to DM_ALLOC: it maps the memory.
	Adopt() error

	// Store and Load copy from and to a program's memory. Offsets and lengths are multiples
	// of 4, within the DM. Store and Load may be called concurrently.
	Store(off int, from []byte)
	Load(to []byte, off int)

	// Mapping returns the offset at which the device's file maps the memory's pages, and
	// the start of the memory in these pages.
	Mapping() (offset, start uint64)

	// Release unmaps the memory. Verbs calls it if Adopt has succeeded.
	Release()
}

// DeviceExtra has the properties of a device that only its driver reports (struct
// mlx5_ib_query_device_resp, struct efa_ibv_ex_query_device_resp).
type DeviceExtra struct {
	MaxTSO, TSOQPTs            uint32
	RSSFunctions               uint8
	RSSFields                  uint64
	MinPacing, MaxPacing       uint32 // kb/s
	PacingQPTs                 uint32
	PacingBurst                bool
	MaxSends                   uint32 // in a queue, if less than the core's limit; or 0
	CompressedCQEs, CQEFormats uint32 // maximum number in a group; MLX5DV_CQE_RES_FORMAT_*
}

// CQInit has the parameters of a completion queue to create.
type CQInit struct {
	CQE         uint32
	CQESize     uint32 // size of an entry in bytes; 0 for the provider's choice
	Compression uint8  // MLX5DV_CQE_RES_FORMAT_*, 0 for none
	Fields      Fields // the fields that PollEx must report
	Channel     bool   // the CQ has a completion channel, so Arm may be called
	Extra       any    // as in QPInit
}

// QPInit has the parameters of a queue pair to create.
type QPInit struct {
	Type           uapi.IbUverbsQpType
	Driver         DriverType
	DCKey          uint64 // the access key of a DC target
	Cap            uapi.IbUverbsQpCap
	SignalAll      bool // each send generates a completion, whatever its flags
	SendCQ, RecvCQ CQ   // nil if the type has none
	SRQ            SRQ  // for the QP's receives, or nil
	MaxTSOHeader   uint32
	Sign           bool // work requests have signatures
	Single         bool // one goroutine at a time posts sends, so the QP's own doorbell needs no lock

	// Scatter is not nil if CQEs may contain short messages. It copies data to the address that a
	// work request names, and reports whether all of the destination is registered memory.
	Scatter func(lkey uint32, addr uint64, data []byte) bool

	// The device's capabilities: atomic operations; checksum offload for raw packets;
	// and the maximum size of data for TCP segmentation offload.
	Atomics, Checksums bool
	MaxTSO             uint32

	Extra any // options from a package for the driver's own verbs, or nil
}

// A DriverType is a type of QP that only one driver has. The QP's type is then
// IB_UVERBS_QPT_DRIVER. A provider refuses other drivers' types.
type DriverType uint8

const (
	NoDriverType DriverType = iota
	DCInitiator             // mlx5: a side of the dynamically connected transport
	DCTarget                // the other side
	SRD                     // efa: scalable reliable datagrams
)

// SRQInit has the parameters of a shared receive queue to create.
type SRQInit struct {
	MaxWR, MaxSGE uint32
	XRC           bool
	MaxTags       uint32 // 0 without tag matching
	CQ            CQ     // for an XRC SRQ, or one that matches tags
}

// A PD is a protection domain.
type PD interface {
	// Adopt processes the response to ALLOC_PD.
	Adopt() error
}

// A QP is the pair of work queues.
type QP interface {
	// Adopt processes the response to QP_CREATE: the kernel's handle and number, and the
	// granted capabilities, which the provider may correct.
	Adopt(handle, qpn uint32, granted *uapi.IbUverbsQpCap) error

	// PostSend encodes work requests into the send queue. If more is false, it then rings
	// the doorbell for all requests encoded since the last ring. With empty wrs it only
	// rings the doorbell.
	//
	// If it returns an error, wrs[n] was refused, and the requests before it were posted.
	// If n is len(wrs), ringing the doorbell failed. If n is 0, the doorbell was not rung,
	// not even for earlier requests. PostSend must not keep a reference to wrs, nor to
	// anything that they point to.
	PostSend(wrs []SendWR, more bool) (n int, err error)

	// TakeBack removes the requests for which the doorbell has not been rung.
	TakeBack()

	// PostRecv is like PostSend, for the receive queue. It refuses a receive of more than
	// MaxMessage bytes with ErrRecvTooLong.
	PostRecv(wrs []RecvWR) (n int, err error)

	// ECE returns the vendor and the options of the device's enhanced connection
	// establishment. The vendor is 0 if the provider has no ECE. SetECE sets the options
	// that the next Modify requests, and reports whether the device has ECE.
	ECE() (vendor, options uint32)
	SetECE(options uint32) bool

	// Modify begins a MODIFY_QP with the provider's part. It returns false if the provider
	// has no part; then verbs uses a WriteModifyQp.
	Modify() (cmd ioctl.WriteExModifyQp, ok bool)

	// Moved is called after a change of state. It returns the QP's new number. A change to
	// RESET empties the queues.
	Moved(to uapi.IbQpState) (qpn uint32)

	// Release unmaps the queues.
	Release()
}

// A ShortPoster is a QP with a faster path for requests of the most common kinds. QPs
// need not implement it.
type ShortPoster interface {
	// PostShort posts all of the requests, or none, and reports whether it posted them. It
	// may refuse any request. The caller then uses PostSend, which accepts the requests or
	// returns an error.
	PostShort(list []Short, more bool) bool
}

// A Paced is a QP whose driver takes further parameters of a rate limit. QPs need not
// implement it.
type Paced interface {
	// LimitBurst adds the maximum burst and the typical length of a packet, in bytes, to a
	// command that sets the rate limit.
	LimitBurst(cmd ioctl.WriteExModifyQp, burst uint32, packet uint16)
}

// A QueryLimiter is a QP whose driver refuses queries of attributes that it lacks. QPs need
// not implement it.
type QueryLimiter interface {
	// QueryMask returns the attributes that the driver has.
	QueryMask() uapi.IbQpAttrMask
}

// An Orderer is a QP whose device may write messages to memory in order. QPs need not
// implement it.
type Orderer interface {
	// DataOrder returns the order in which the device promises to write the data of an
	// operation to this QP's side: of the QP's own RDMA reads, or the peer's RDMA writes
	// and sends. If the order isn't known, DataOrder returns DataUnordered. The QP is
	// connected, and handle is the kernel's.
	DataOrder(handle uint32, op uapi.IbUverbsWrOpcode) (DataOrder, error)
}

// A DataOrder is the order in which a device writes a message to memory.
type DataOrder uint8

const (
	DataUnordered  DataOrder = iota // any order
	DataInOrder128                  // in order within each aligned block of 128 bytes
	DataInOrder                     // in order
)

// An SRQ is a shared receive queue.
type SRQ interface {
	// Adopt processes the response to SRQ_CREATE, as QP.Adopt does.
	Adopt(handle uint32, granted *SRQInit) error
	PostRecv(wrs []RecvWR) (n int, err error)

	// Modify adds the provider's part. If the command has resized the queue, verbs calls Remap.
	Modify(cmd ioctl.WriteModifySrq) error
	Remap() error

	Release()
}

// A TagMatcher is an SRQ whose SRQInit.MaxTags isn't 0. The lock that covers PostRecv covers
// PostTagOps, too.
type TagMatcher interface {
	// Operate gives the SRQ an RC queue pair on which to post the operations on its list of
	// tags. Verbs has connected the QP to itself. The QP has room for the requested number of
	// operations, and is released before the SRQ.
	Operate(qp QP)
	// PostTagOps posts operations, and fills in the handles of added tags.
	PostTagOps(ops []TagOp) (n int, err error)
}

// A CQ is a completion queue.
type CQ interface {
	Adopt(handle uint32) error

	// Poll moves up to len(wc) completions into wc and returns their number. It returns an
	// error, such as a *CQEError, only if there are no completions before it. It must not
	// keep a reference to wc.
	Poll(wc []WC) (int, error)
	// Arm requests an event for the next completion or, with solicitedOnly, for the next
	// completion that is solicited or has an error. events is the number of events so far.
	Arm(solicitedOnly bool, events uint32) error

	// Forget drops the completions of a QP that was moved to RESET or destroyed. The
	// caller serialises it with Poll.
	Forget(qp QP)
	// ForgetSRQ is like Forget, for an XRC SRQ that was destroyed.
	ForgetSRQ(srq SRQ)

	// Resize adds the provider's part, for cqe completions. Then Remap is called.
	// Completions in the queue are kept.
	Resize(cmd ioctl.WriteResizeCq, cqe uint32) error
	Remap() error

	Release()
}

// An ExPoller is a CQ whose completions can have more fields. If CQInit.Fields isn't 0,
// NewCQ must return such a CQ, or else ErrNoField. It must check Fields only if its CQs are
// ExPollers: verbs refuses other CQs.
type ExPoller interface {
	// PollEx is like Poll, for completions with the fields of CQInit.Fields. The fields that
	// are neither in WC nor selected are 0. If the request has failed, all fields outside WC
	// are 0.
	PollEx(wc []WCEx) (int, error)
}

// An AH is the provider's part of a new address handle.
type AH interface {
	// Local reports whether the address handle needs no object in the kernel.
	Local() bool
	// Adopt fills in the data for work requests, from the response to CREATE_AH.
	Adopt(ref *AHRef) error
}

// AHInit has the parameters of an address handle to create.
type AHInit struct {
	Attr uapi.IbUverbsAhAttr
	// Link returns the properties of the address's port.
	Link func() (Link, error)
}

// A Link has the properties of an address's port and source GID.
type Link struct {
	Ethernet    bool
	RoCEV2      bool // on Ethernet, whether the GID's type is RoCE v2
	GRHRequired bool // every address must be global
}
