package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A QPType is a transport, as enum ibv_qp_type.
type QPType uint32

const (
	RC = QPType(uapi.IB_UVERBS_QPT_RC) // reliable connection
	UC = QPType(uapi.IB_UVERBS_QPT_UC) // unreliable connection
	UD = QPType(uapi.IB_UVERBS_QPT_UD) // unreliable datagram
)

func (t QPType) String() string { return uapi.EnumIbUverbsQpType.Short(uint64(t)) }

// QPCap bounds a QP's queues, as struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR     int // work requests that may be outstanding
	MaxRecvWR     int // ignored with an SRQ
	MaxSendSGE    int // pieces of one work request
	MaxRecvSGE    int // ignored with an SRQ
	MaxInlineData int // bytes
}

// QPOptions are the arguments of CreateQP.
type QPOptions struct {
	Type   QPType
	SendCQ *CQ
	RecvCQ *CQ
	SRQ    *SRQ // nil: the QP has a receive queue of its own
	Cap    QPCap

	SignalAll bool // every send completes on the CQ, SendSignaled or not

	// SingleOwner promises that one goroutine at a time posts sends, and one
	// receives, and drops the locks. A second one that is seen panics.
	SingleOwner bool
}

// A QP is a queue pair. Its methods are safe for concurrent use, unless it was
// made with QPOptions.SingleOwner; sends and receives don't wait for each
// other.
type QP struct {
	object
	typ       QPType
	num       uint32
	cap       QPCap
	signalAll bool
	srq       *SRQ
	sendCQ    *CQ
	recvCQ    *CQ
	state     atomic.Uint32 // QPState, as of the last Modify or Query
	modify    sync.Mutex

	usualOps atomic.Uint32 // usualOps of the type if the QP can send, else 0

	sendMu queueLock
	recvMu queueLock
	prov   provider.QP // nil when closed; under both locks
	groups []mcastGroup
}

func (qp *QP) base() *object {
	if qp == nil {
		return nil
	}
	return &qp.object
}

// CreateQP creates a queue pair (ibv_create_qp), in the RESET state. The
// capabilities that it gets may be larger than asked for: see QP.Cap.
func (pd *PD) CreateQP(o QPOptions) (*QP, error) {
	const op = "create QP"
	if err := hold(op, pd.base()); err != nil {
		return nil, err
	}
	defer pd.drop()
	parents := []*object{&pd.object, o.SendCQ.base(), o.RecvCQ.base()}
	switch {
	case o.SendCQ == nil:
		return nil, invalid(op, "no SendCQ")
	case o.RecvCQ == nil:
		return nil, invalid(op, "no RecvCQ")
	}
	if o.SRQ != nil {
		parents = append(parents, &o.SRQ.object)
	}
	if err := hold(op, parents...); err != nil {
		return nil, err
	}
	qp, err := pd.createQPHeld(op, &o, parents)
	if err != nil {
		drop(parents...)
	}
	return qp, err
}

func (pd *PD) createQPHeld(op string, o *QPOptions, parents []*object) (*QP, error) {
	c := pd.ctx
	if err := c.checkQP(op, o); err != nil {
		return nil, err
	}
	qp := &QP{typ: o.Type, signalAll: o.SignalAll, srq: o.SRQ, sendCQ: o.SendCQ, recvCQ: o.RecvCQ}
	qp.sendMu.single, qp.recvMu.single = o.SingleOwner, o.SingleOwner
	qp.id = c.newID()

	limits := o.Cap
	if o.SRQ != nil {
		limits.MaxRecvWR, limits.MaxRecvSGE = 0, 0
	}
	cmd := ioctl.New(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE)
	defer cmd.Release()
	handle := cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_QP_HANDLE)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd.handle)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, o.SendCQ.handle)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, o.RecvCQ.handle)
	if o.SRQ != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, o.SRQ.handle)
	}
	cmd.U64(uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, qp.id)
	*ioctl.In[uapi.IbUverbsQpCap](cmd, uapi.UVERBS_ATTR_CREATE_QP_CAP) = uapi.IbUverbsQpCap{
		MaxSendWr: uint32(limits.MaxSendWR), MaxRecvWr: uint32(limits.MaxRecvWR),
		MaxSendSge: uint32(limits.MaxSendSGE), MaxRecvSge: uint32(limits.MaxRecvSGE),
		MaxInlineData: uint32(limits.MaxInlineData),
	}
	cmd.U64(uapi.UVERBS_ATTR_CREATE_QP_TYPE, uint64(o.Type))
	if o.SignalAll {
		cmd.U32(uapi.UVERBS_ATTR_CREATE_QP_FLAGS, uint32(uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL))
	}
	granted := ioctl.Out[uapi.IbUverbsQpCap](cmd, uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP)
	num := ioctl.Out[uint32](cmd, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM)
	init := provider.QPInit{
		Type: uapi.IbUverbsQpType(o.Type), Cap: limits.flat(), SignalAll: o.SignalAll,
		SendCQ: o.SendCQ.prov, RecvCQ: o.RecvCQ.prov,
	}
	if o.SRQ != nil {
		init.SRQ = o.SRQ.prov
	}
	prov, err := c.prov.NewQP(cmd, init)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	object := fmt.Sprintf("%v, %d WR", o.Type, o.Cap.MaxSendWR)
	if err := cmd.Run(c.file); err != nil {
		prov.Release()
		return nil, opErr(op, object, err)
	}
	qp.num = *num
	limit := provider.QPCap{
		MaxSendWR: granted.MaxSendWr, MaxRecvWR: granted.MaxRecvWr,
		MaxSendSGE: granted.MaxSendSge, MaxRecvSGE: granted.MaxRecvSge,
		MaxInlineData: granted.MaxInlineData,
	}
	if err := prov.Adopt(uint32(*handle), qp.num, &limit); err != nil {
		destroyQP(c, uint32(*handle))
		prov.Release()
		return nil, opErr(op, object, err)
	}
	qp.cap = QPCap{
		MaxSendWR: int(limit.MaxSendWR), MaxRecvWR: int(limit.MaxRecvWR),
		MaxSendSGE: int(limit.MaxSendSGE), MaxRecvSGE: int(limit.MaxRecvSGE),
		MaxInlineData: int(limit.MaxInlineData),
	}
	qp.prov = prov
	qp.setState(QPReset)
	qp.adopt(c, kindQP, uint32(*handle), qp, parents...)
	return qp, nil
}

func (q QPCap) flat() provider.QPCap {
	return provider.QPCap{
		MaxSendWR: uint32(q.MaxSendWR), MaxRecvWR: uint32(q.MaxRecvWR),
		MaxSendSGE: uint32(q.MaxSendSGE), MaxRecvSGE: uint32(q.MaxRecvSGE),
		MaxInlineData: uint32(q.MaxInlineData),
	}
}

// maxInline bounds what is asked for inline; no device has near as much, and
// the kernel would compute a queue's size with more.
const maxInline = 1 << 16

// checkQP refuses what the device can't do, naming it.
func (c *Context) checkQP(op string, o *QPOptions) error {
	limits, err := c.deviceLimits()
	if err != nil {
		return err
	}
	switch o.Type {
	case RC, UC, UD:
	default:
		return invalid(op, "type %v is not RC, UC or UD", o.Type)
	}
	bounds := []struct {
		name   string
		v, max int
	}{
		{"MaxSendWR", o.Cap.MaxSendWR, limits.MaxQPWR},
		{"MaxRecvWR", o.Cap.MaxRecvWR, limits.MaxQPWR},
		{"MaxSendSGE", o.Cap.MaxSendSGE, limits.MaxSGE},
		{"MaxRecvSGE", o.Cap.MaxRecvSGE, limits.MaxSGE},
		{"MaxInlineData", o.Cap.MaxInlineData, maxInline},
	}
	for _, b := range bounds {
		if b.v < 0 || b.v > b.max {
			return invalid(op, "%s %d is not in 0 to %d", b.name, b.v, b.max)
		}
	}
	return nil
}

func destroyQP(c *Context, handle uint32) error {
	return destroyHandle(c, uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY, handle, 4)
}

// Num returns the queue pair number, 24 bits, that peers address.
func (qp *QP) Num() uint32 { return qp.num }

// Type returns the transport.
func (qp *QP) Type() QPType { return qp.typ }

// Cap returns the capabilities that the QP was given.
func (qp *QP) Cap() QPCap { return qp.cap }

// State returns the state as of the last Modify or Query. A QP goes to QPErr
// by itself when a work request fails; Query asks the kernel.
func (qp *QP) State() QPState { return QPState(qp.state.Load()) }

func (qp *QP) setState(to QPState) {
	qp.state.Store(uint32(to))
	ops := uint32(0)
	if to >= QPRTS && int(qp.typ) < len(usualOps) {
		ops = usualOps[qp.typ]
	}
	qp.usualOps.Store(ops)
}

// Close destroys the QP (ibv_destroy_qp). Its work requests end without
// completions. While it is attached to a multicast group, it is detached first.
func (qp *QP) Close() error {
	if qp == nil {
		return nil
	}
	// Held to the end: a post in between would ring for a handle that may be
	// another object's by then.
	qp.sendMu.Lock()
	defer qp.sendMu.Unlock()
	qp.recvMu.Lock()
	defer qp.recvMu.Unlock()
	return qp.base().end("destroy QP",
		func() error {
			for _, g := range qp.groups {
				qp.mcast(uapi.IB_USER_VERBS_CMD_DETACH_MCAST, g)
			}
			return destroyQP(qp.ctx, qp.handle)
		},
		func() {
			qp.forget()
			qp.prov.Release()
			qp.prov = nil
			qp.usualOps.Store(0)
		})
}

// forget drops the QP's completions that were not polled.
func (qp *QP) forget() {
	qp.sendCQ.forget(qp)
	if qp.recvCQ != qp.sendCQ {
		qp.recvCQ.forget(qp)
	}
}
