package verbs

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A QPType is a type of queue pair (enum ibv_qp_type).
type QPType = ib.QPType

const (
	RC QPType = ib.RC // reliable connection
	UC QPType = ib.UC // unreliable connection
	UD QPType = ib.UD // unreliable datagram

	// RawPacket sends and receives Ethernet frames (CAP_NET_RAW).
	RawPacket QPType = ib.RawPacket

	// XRCSend and XRCRecv are the two sides of the extended reliable connection transport
	// (XRC). An XRCSend QP sends to the SRQs in the XRC domain of its peer, an XRCRecv QP.
	XRCSend QPType = ib.XRCSend
	XRCRecv QPType = ib.XRCRecv // see XRCSend

	// DCI and DCT are the two sides of mlx5's dynamically connected transport (DC). A DCI
	// sends to any number of DCTs. A DCT receives into an SRQ.
	DCI QPType = ib.DCI
	DCT QPType = ib.DCT // see DCI

	// SRD is efa's scalable reliable datagram transport. Each request names its
	// destination, as on a UD queue pair, and arrives once. Requests may arrive and
	// complete out of order. Besides sends there are RDMA reads and writes.
	SRD QPType = ib.SRD
)

// kernelType returns the type for uverbs, and the driver's type for the provider.
func kernelType(t QPType) (uapi.IbUverbsQpType, provider.DriverType) {
	switch t {
	case DCI:
		return uapi.IB_UVERBS_QPT_DRIVER, provider.DCInitiator
	case DCT:
		return uapi.IB_UVERBS_QPT_DRIVER, provider.DCTarget
	case SRD:
		return uapi.IB_UVERBS_QPT_DRIVER, provider.SRD
	}
	return uapi.IbUverbsQpType(t), provider.NoDriverType
}

// addressed, connects, sends and receives report properties of a type of QP: its requests
// name destinations, it has a peer, it has a send queue, it has a receive queue. A DCT has
// neither queue, but it has a CQ.
func addressed(t QPType) bool { return t == UD || t == DCI || t == SRD }
func connects(t QPType) bool  { return t == RC || t == UC || t == XRCSend || t == XRCRecv }
func sends(t QPType) bool     { return t != XRCRecv && t != DCT }
func receives(t QPType) bool  { return t != XRCSend && t != XRCRecv && t != DCT && t != DCI }

// QPCap has the limits of a QP's queues (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR int // outstanding work requests
	MaxRecvWR int // outstanding receives; ignored with an SRQ

	// MaxSendSGE and MaxRecvSGE are the maximum numbers of scatter/gather entries of a send and of
	// a receive. In QPOptions, 0 stands for 1, and a negative number for none: then sends have
	// inline data or no data, and receives take no data. MaxRecvSGE is ignored with an SRQ.
	MaxSendSGE int
	MaxRecvSGE int // see MaxSendSGE

	MaxInlineData int // bytes of SendWR.Inline
}

// QPOptions are the arguments of CreateQP.
type QPOptions struct {
	Type   QPType // the transport
	SendCQ *CQ    // every type but XRCSend needs both CQs, even DCI and DCT
	RecvCQ *CQ    // for receives; it may be SendCQ
	SRQ    *SRQ   // if nil, the QP has a receive queue of its own
	Cap    QPCap  // sizes of the queues

	DCKey        uint64 // for DCT: the access key, which senders must name
	MaxTSOHeader int    // for RawPacket: maximum length of SendWR.Header

	CreateFlags QPCreateFlags // zero or more flags; each needs a capability of the device

	SignalAll bool // every send generates a completion, even without SendSignaled

	// ScatterToCQE lets the device put short data into completions, which saves it a write:
	// received messages and, with SignalAll, the results of reads and atomic operations, of
	// up to 32 bytes, or 64 in completions of 128. Poll copies the data to the request's
	// memory. ScatterToCQE is for RC only, and only mlx5 does it.
	//
	// All memory of all requests must belong to an MR of RegMR or AllocMR, with
	// AccessLocalWrite, or to a null MR, and the MR must be open when the completion is
	// polled. Otherwise the completion has the status WCLocProtErr, and the data is lost.
	// Memory given to RegMR must also still be mapped.
	//
	// libmlx5 does this by default, unless MLX5_SCATTER_TO_CQE is 0. Here a program must
	// request it, because it breaks otherwise correct programs: those that receive or read
	// into memory that Poll can't access, such as that of RegDmabufMR, RegDM or
	// RegImplicitMR. CreateQP can't detect them: it doesn't know the memory of later
	// requests.
	ScatterToCQE bool

	// SignWQEs adds a signature to each work request. mlx5 adapters verify it.
	SignWQEs bool

	// SingleOwner promises that only one goroutine at a time posts sends, and only one at a
	// time posts receives. It removes the locks. A second goroutine panics if it is detected.
	//
	// On mlx5, the QP also has its own doorbell register, which needs no lock. Without
	// SingleOwner, only the first eight QPs of a Device have one, unless mlx5dv.Options or
	// MLX5_TOTAL_UUARS says otherwise. If the adapter has no register left, CreateQP fails.
	SingleOwner bool

	// Value is the caller's own data, which QP.Value returns.
	Value any
}

// A QP is a queue pair. Its methods are safe for concurrent use, unless it was created
// with QPOptions.SingleOwner. Posts of sends and posts of receives don't wait for each
// other.
type QP struct {
	object
	pd        *PD
	typ       QPType
	num       atomic.Uint32
	cap       QPCap
	signalAll bool
	rss       bool // has neither queues nor a state: see CreateRSSQP
	srq       *SRQ
	sendCQ    *CQ
	recvCQ    *CQ
	state     atomic.Uint32 // QPState, as of the last Modify or Query
	modify    sync.Mutex
	origin    origin // under modify

	usualOps atomic.Uint64 // the type's bits and usualShort if the QP can send, usualRecv if it can receive; 0 on a removed device

	groups []mcastGroup
	prov   provider.QP          // nil when closed; under both locks
	poster provider.ShortPoster // prov, if it is one; set once
	value  any                  // QPOptions.Value

	// The fields that posts of sends write, and those that posts of receives write, have
	// cache lines of their own. The two kinds of post may run on different processors, and
	// both read the fields above.
	_      memorder.Apart
	sendMu queueLock
	batch  SendBuilder
	_      memorder.Apart
	recvMu queueLock
	_      memorder.Apart
}

func (qp *QP) base() *object {
	if qp == nil {
		return nil
	}
	return &qp.object
}

// CreateQP creates a queue pair in the RESET state (ibv_create_qp). Its capabilities
// may be larger than requested: see QP.Cap. An XRCRecv QP has no PD: see XRCD.CreateQP.
func (pd *PD) CreateQP(o QPOptions) (*QP, error) {
	return pd.createQP("create QP", o, nil)
}

// createQP is like CreateQP, with extra options from a package for the driver's own verbs.
func (pd *PD) createQP(op string, o QPOptions, extra any) (*QP, error) {
	if err := pd.base().usable(op); err != nil {
		return nil, err
	}
	parents, err := pd.qpParents(op, &o)
	if err != nil {
		return nil, err
	}
	return create(op, parents, func() (*QP, error) { return pd.dev.newQP(op, &o, extra, pd, nil, parents) })
}

// CreateQP creates an XRCRecv queue pair of the domain (ibv_create_qp). It has neither queues
// nor CQs: its messages go to the domain's SRQs. So CreateQP uses only the options Value and
// CreateFlags. Type may be left out.
func (x *XRCD) CreateQP(o QPOptions) (*QP, error) {
	const op = "create QP"
	parents := []*object{x.base()}
	return create(op, parents, func() (*QP, error) {
		if o.Type == 0 {
			o.Type = XRCRecv
		}
		if o.Type != XRCRecv {
			return nil, invalid(op, "a %v QP is made on a PD, not on an XRCD", o.Type)
		}
		if o.SendCQ != nil || o.RecvCQ != nil || o.SRQ != nil {
			return nil, invalid(op, "an XRCRecv QP takes neither CQs nor an SRQ")
		}
		return x.dev.newQP(op, &o, nil, nil, x, parents)
	})
}

// qpParents returns the objects that a QP depends on, according to its type.
func (pd *PD) qpParents(op string, o *QPOptions) ([]*object, error) {
	parents := []*object{pd.base()}
	if o.Type == XRCRecv {
		return nil, invalid(op, "an XRCRecv QP is made with XRCD.CreateQP")
	}
	if o.SendCQ == nil {
		return nil, invalid(op, "no SendCQ")
	}
	parents = append(parents, o.SendCQ.base())
	if o.Type != XRCSend {
		if o.RecvCQ == nil {
			return nil, invalid(op, "no RecvCQ")
		}
		parents = append(parents, o.RecvCQ.base())
	} else if o.RecvCQ != nil || o.SRQ != nil {
		return nil, invalid(op, "an XRCSend QP takes neither a RecvCQ nor an SRQ")
	}
	if o.SRQ != nil {
		parents = append(parents, &o.SRQ.object)
	} else if o.Type == DCT {
		return nil, invalid(op, "a DCT needs an SRQ")
	}
	return parents, nil
}

// newQP creates a QP on a PD or an XRC domain.
func (d *Device) newQP(op string, o *QPOptions, extra any, pd *PD, domain *XRCD, parents []*object) (*QP, error) {
	device, err := d.checkQP(op, o)
	if err != nil {
		return nil, err
	}
	qp := &QP{pd: pd, typ: o.Type, signalAll: o.SignalAll, srq: o.SRQ, sendCQ: o.SendCQ, recvCQ: o.RecvCQ, value: o.Value}
	qp.batch.qp, qp.batch.n = qp, ended
	qp.sendMu.single, qp.recvMu.single = o.SingleOwner, o.SingleOwner
	qp.id = d.newID()
	init := d.qpInit(o, device, extra)
	cmd := ioctl.NewQpCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	qp.describe(cmd, o, domain)
	granted := cmd.RespCap()
	num := cmd.RespQpNum()
	prov, err := d.prov.NewQP(cmd, &init)
	if err != nil {
		return nil, d.failed(op, "", err)
	}
	cmd.Cap(init.Cap)
	object := fmt.Sprintf("%v, %d WR", o.Type, o.Cap.MaxSendWR)
	if err := cmd.Run(d.file); err != nil {
		prov.Release()
		e := d.failedToLock(op, object, err)
		if o.Type == RawPacket {
			return nil, e.needsRaw()
		}
		return nil, e
	}
	if err := prov.Adopt(uint32(*handle), *num, granted); err != nil {
		d.undo(destroyQP, uint32(*handle), prov.Release)
		return nil, d.failedToLock(op, object, err)
	}
	qp.cap = QPCap{
		MaxSendWR: int(granted.MaxSendWr), MaxRecvWR: int(granted.MaxRecvWr),
		MaxSendSGE: int(granted.MaxSendSge), MaxRecvSGE: int(granted.MaxRecvSge),
		MaxInlineData: int(granted.MaxInlineData),
	}
	qp.setProvider(prov)
	qp.adopt(d, kindQP, uint32(*handle), qp, parents...)
	qp.renumber(*num)
	qp.setState(QPReset)
	return qp, nil
}

// qpInit returns the options of a QP for the provider.
func (d *Device) qpInit(o *QPOptions, device *DeviceAttr, extra any) provider.QPInit {
	limits := o.Cap
	limits.MaxSendSGE = entries(limits.MaxSendWR, limits.MaxSendSGE)
	limits.MaxRecvSGE = entries(limits.MaxRecvWR, limits.MaxRecvSGE)
	if o.SRQ != nil || !receives(o.Type) {
		limits.MaxRecvWR, limits.MaxRecvSGE = 0, 0
	}
	if !sends(o.Type) {
		limits.MaxSendWR, limits.MaxSendSGE, limits.MaxInlineData = 0, 0, 0
	}
	typ, driver := kernelType(o.Type)
	init := provider.QPInit{
		Type: typ, Driver: driver, DCKey: o.DCKey, Cap: limits.kernel(), SignalAll: o.SignalAll,
		MaxTSOHeader: uint32(o.MaxTSOHeader), Sign: o.SignWQEs, Single: o.SingleOwner,
		Atomics: device.AtomicCap != AtomicNone, Checksums: device.DeviceCapFlags&DeviceRawIPCsum != 0,
		Extra: extra,
	}
	if device.TSO.SupportedQPTs>>uint32(RawPacket)&1 != 0 {
		init.MaxTSO = device.TSO.MaxTSO
	}
	if o.ScatterToCQE {
		d.trackMRs()
		init.Scatter = d.scatter
	}
	if o.SendCQ != nil {
		init.SendCQ = o.SendCQ.prov
	}
	if o.RecvCQ != nil {
		init.RecvCQ = o.RecvCQ.prov
	}
	if o.SRQ != nil {
		init.SRQ = o.SRQ.prov
	}
	return init
}

// describe fills the command that creates the QP, except for the fields that the provider
// sets.
func (qp *QP) describe(cmd ioctl.QpCreate, o *QPOptions, domain *XRCD) {
	if domain != nil {
		cmd.XrcdHandle(domain.handle)
	} else {
		cmd.PdHandle(qp.pd.handle)
	}
	if o.SendCQ != nil {
		cmd.SendCqHandle(o.SendCQ.handle)
	}
	if o.RecvCQ != nil {
		cmd.RecvCqHandle(o.RecvCQ.handle)
	}
	if o.SRQ != nil {
		cmd.SrqHandle(o.SRQ.handle)
	}
	cmd.UserHandle(qp.id)
	typ, _ := kernelType(o.Type)
	cmd.Type(typ)
	flags := uapi.IbUverbsQpCreateFlags(o.CreateFlags)
	if o.SignalAll {
		flags |= uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL
	}
	if flags != 0 {
		cmd.Flags(flags)
	}
}

// entries returns the number of scatter/gather entries for the kernel.
func entries(wr, sge int) int {
	if sge == 0 && wr > 0 {
		return 1
	}
	return max(sge, 0)
}

// kernel returns the capabilities in uverbs' form.
func (q QPCap) kernel() uapi.IbUverbsQpCap {
	return uapi.IbUverbsQpCap{
		MaxSendWr: uint32(q.MaxSendWR), MaxRecvWr: uint32(q.MaxRecvWR),
		MaxSendSge: uint32(q.MaxSendSGE), MaxRecvSge: uint32(q.MaxRecvSGE),
		MaxInlineData: uint32(q.MaxInlineData),
	}
}

// maxInline limits MaxInlineData. No device supports nearly as much. With more, the
// kernel's computation of a queue's size could overflow.
const maxInline = 1 << 16

// checkQP returns the device's attributes, or an error that names an option that the device
// doesn't support.
func (d *Device) checkQP(op string, o *QPOptions) (*DeviceAttr, error) {
	limits, err := d.deviceLimits()
	if err != nil {
		return nil, err
	}
	switch o.Type {
	case RC, UC, UD:
	case RawPacket, XRCSend, XRCRecv, DCI, DCT, SRD:
		// Drivers without RawPacket refuse.
	default:
		return nil, invalid(op, "there is no type %v", o.Type)
	}
	if d.iwarp() && o.Type != RC {
		return nil, lacking(op, errIWARPTypes)
	}
	if o.ScatterToCQE && o.Type != RC {
		return nil, invalid(op, "ScatterToCQE is for RC only")
	}
	if o.ScatterToCQE && o.SRQ != nil && o.SRQ.tags != nil {
		return nil, invalid(op, "ScatterToCQE is not for an SRQ that matches tags")
	}
	if err := o.CreateFlags.check(op, o.Type, limits); err != nil {
		return nil, err
	}
	bounds := []struct {
		name   string
		v, max int
	}{
		{"MaxSendWR", o.Cap.MaxSendWR, limits.MaxQPWR},
		{"MaxRecvWR", o.Cap.MaxRecvWR, limits.MaxQPWR},
		{"MaxSendSGE", max(o.Cap.MaxSendSGE, 0), limits.MaxSGE},
		{"MaxRecvSGE", max(o.Cap.MaxRecvSGE, 0), limits.MaxSGE},
		{"MaxInlineData", o.Cap.MaxInlineData, maxInline},
		{"MaxTSOHeader", o.MaxTSOHeader, maxInline},
	}
	for _, b := range bounds {
		if b.v < 0 || b.v > b.max {
			return nil, invalid(op, "%s %d is not in 0 to %d", b.name, b.v, b.max)
		}
	}
	return limits, nil
}

func destroyQP(d *Device, handle uint32) error {
	cmd := ioctl.NewQpDestroy()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.Resp() // an event count, which nobody needs
	return cmd.Run(d.file)
}

// Num returns the queue pair number (24 bits), with which peers address the QP.
//
// A DCT has no number before it is in RTR.
func (qp *QP) Num() uint32 {
	if qp == nil {
		return 0
	}
	return qp.num.Load()
}

// renumber sets the QP's number. Only a DCT's number changes.
func (qp *QP) renumber(num uint32) {
	if old := qp.num.Swap(num); old != num {
		qp.dev.qps.leave(qp, old)
		qp.dev.qps.enter(qp, num)
	}
}

// Value returns QPOptions.Value. With Device.QPByNum it leads from a completion to the
// caller's own data.
func (qp *QP) Value() any {
	if qp == nil {
		return nil
	}
	return qp.value
}

// Type returns the transport.
func (qp *QP) Type() QPType {
	if qp == nil {
		return 0
	}
	return qp.typ
}

// Cap returns the QP's actual capabilities.
func (qp *QP) Cap() QPCap {
	if qp == nil {
		return QPCap{}
	}
	return qp.cap
}

// State returns the state as of the last Modify or Query. When a work request fails, the
// device moves the QP to QPErr. State doesn't show that; Query asks the kernel.
func (qp *QP) State() QPState {
	if qp == nil {
		return QPReset
	}
	return QPState(qp.state.Load())
}

func (qp *QP) setProvider(p provider.QP) {
	qp.prov = p
	qp.poster, _ = p.(provider.ShortPoster)
}

func (qp *QP) setState(to QPState) {
	qp.state.Store(uint32(to))
	ops := uint64(0)
	if to >= QPRTS && int(qp.typ) < len(usualOps) {
		ops = usualOps[qp.typ]
	}
	if qp.poster != nil && ops&(1<<OpRDMAWrite) != 0 {
		ops |= usualShort
	}
	if to != QPReset && qp.srq == nil && receives(qp.typ) {
		ops |= usualRecv
	}
	qp.usualOps.Store(ops)
	if qp.dev != nil && qp.dev.removal.gone.Load() {
		qp.usualOps.Store(0)
	}
}

// Close destroys the QP (ibv_destroy_qp). Outstanding work requests don't complete. An
// acknowledgement that the peer waits for may be lost, and the peer's request then fails,
// although its message was received. So both sides should agree on the end.
//
// Close first detaches the QP from multicast groups. It returns ErrBusy while a batch
// is being built: see QP.Sends.
func (qp *QP) Close() error {
	if qp == nil {
		return nil
	}
	// The locks are held until the end. Otherwise a post in between could ring the doorbell
	// of a handle that already belongs to another object.
	if !qp.sendMu.lockUnlessBatch() {
		return opErr("destroy QP", "", errBatch)
	}
	defer qp.sendMu.Unlock()
	qp.recvMu.Lock()
	defer qp.recvMu.Unlock()
	return qp.base().end("destroy QP",
		func() error {
			// If a group can't be detached, the kernel refuses to destroy the QP.
			qp.groups = slices.DeleteFunc(qp.groups, func(g mcastGroup) bool { return qp.detach(g) == nil })
			return destroyQP(qp.dev, qp.handle)
		},
		func() {
			qp.forget()
			qp.dev.qps.leave(qp, qp.Num())
			qp.prov.Release()
			qp.prov = nil
			qp.usualOps.Store(0)
		})
}

// forget drops the QP's completions from its CQs.
func (qp *QP) forget() {
	if qp.sendCQ != nil {
		qp.sendCQ.forget(qp)
	}
	if qp.recvCQ != nil && qp.recvCQ != qp.sendCQ {
		qp.recvCQ.forget(qp)
	}
}
