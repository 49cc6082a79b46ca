package verbs

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An SRQ is a shared receive queue: any number of QPs take their receives from it. Its
// methods are safe for concurrent use, unless it was created with
// SRQOptions.SingleOwner.
type SRQ struct {
	object
	mu   queueLock
	prov provider.SRQ // nil when closed

	maxWR  atomic.Uint32
	maxSGE int
	num    uint32
	cq     *CQ // for an XRC SRQ, or one that matches tags

	tags  provider.TagMatcher // prov, if it matches tags
	tagQP *QP                 // for operations on the list of tags
}

func (srq *SRQ) base() *object {
	if srq == nil {
		return nil
	}
	return &srq.object
}

// SRQOptions are the arguments of CreateSRQ.
type SRQOptions struct {
	MaxWR  int // minimum capacity in receives, from 1
	MaxSGE int // minimum number of scatter/gather entries of a receive; 0 stands for 1

	// XRCD makes the SRQ an XRC SRQ of this domain. CQ gets the completions of its receives.
	XRCD *XRCD
	CQ   *CQ // see XRCD

	// TagMatching, if not zero, makes the SRQ match tags: see SRQ.PostTagOps. Such an SRQ
	// also needs CQ, for the completions of operations on its list of tags and of its QPs'
	// receives. The CQ usually has WCFieldTag in CQOptions.Fields.
	TagMatching TagMatching

	// SingleOwner promises that only one goroutine at a time posts, and removes the lock. A
	// second goroutine panics if it is detected.
	SingleOwner bool
}

// SRQAttr has an SRQ's attributes (struct ibv_srq_attr).
type SRQAttr struct {
	MaxWR, MaxSGE, Limit int // the sizes, and the limit of SetLimit, which is 0 if not armed
}

// CreateSRQ creates a shared receive queue (ibv_create_srq).
func (pd *PD) CreateSRQ(o SRQOptions) (*SRQ, error) {
	const op = "create SRQ"
	if err := pd.base().usable(op); err != nil {
		return nil, err
	}
	parents := []*object{pd.base()}
	if o.XRCD != nil {
		parents = append(parents, &o.XRCD.object, o.CQ.base())
	} else if o.TagMatching != (TagMatching{}) {
		if o.CQ == nil {
			return nil, invalid(op, "an SRQ that matches tags needs a CQ")
		}
		parents = append(parents, &o.CQ.object)
	} else if o.CQ != nil {
		return nil, invalid(op, "only an XRC SRQ, or one that matches tags, has a CQ of its own")
	}
	srq, err := create(op, parents, func() (*SRQ, error) { return pd.newSRQ(op, &o, parents) })
	if err != nil {
		return nil, err
	}
	if o.TagMatching != (TagMatching{}) {
		if err := srq.operate(op, pd, &o); err != nil {
			srq.Close()
			return nil, err
		}
	}
	return srq, nil
}

func (pd *PD) newSRQ(op string, o *SRQOptions, parents []*object) (*SRQ, error) {
	d := pd.dev
	limits, err := d.deviceLimits()
	if err != nil {
		return nil, err
	}
	switch {
	case limits.MaxSRQ == 0:
		return nil, opErr(op, "", ErrNotSupported)
	case o.MaxWR < 1 || o.MaxWR > limits.MaxSRQWR:
		return nil, invalid(op, "MaxWR %d is not in 1 to %d", o.MaxWR, limits.MaxSRQWR)
	case o.MaxSGE < 0 || o.MaxSGE > limits.MaxSRQSGE:
		return nil, invalid(op, "MaxSGE %d is not in 0 to %d", o.MaxSGE, limits.MaxSRQSGE)
	}
	if err := o.TagMatching.check(op, o, limits); err != nil {
		return nil, err
	}
	srq := new(SRQ)
	srq.mu.single = o.SingleOwner
	srq.id = d.newID()
	cmd := ioctl.NewSrqCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.PdHandle(pd.handle)
	cmd.UserHandle(srq.id)
	typ := uapi.IB_UVERBS_SRQT_BASIC
	var number *uint32
	if o.XRCD != nil {
		typ = uapi.IB_UVERBS_SRQT_XRC
		cmd.XrcdHandle(o.XRCD.handle)
		cmd.CqHandle(o.CQ.handle)
		number = cmd.RespSrqNum()
	}
	if n := o.TagMatching.MaxTags; n > 0 {
		typ = uapi.IB_UVERBS_SRQT_TM
		cmd.CqHandle(o.CQ.handle)
		cmd.MaxNumTags(uint32(n))
		number = cmd.RespSrqNum()
	}
	cmd.Type(typ)
	cmd.Limit(0) // see SetLimit: not every driver arms it here
	maxWR := cmd.RespMaxWr()
	maxSGE := cmd.RespMaxSge()
	init := provider.SRQInit{MaxWR: uint32(o.MaxWR), MaxSGE: uint32(max(o.MaxSGE, 1)), XRC: o.XRCD != nil, MaxTags: uint32(o.TagMatching.MaxTags)}
	if o.CQ != nil {
		init.CQ = o.CQ.prov
	}
	prov, err := d.prov.NewSRQ(cmd, &init)
	if err != nil {
		return nil, d.failed(op, "", err)
	}
	cmd.MaxWr(init.MaxWR)
	cmd.MaxSge(init.MaxSGE)
	object := fmt.Sprintf("%d WR, %d SGE", o.MaxWR, max(o.MaxSGE, 1))
	if err := cmd.Run(d.file); err != nil {
		prov.Release()
		return nil, d.failedToLock(op, object, err)
	}
	granted := provider.SRQInit{MaxWR: *maxWR, MaxSGE: *maxSGE}
	if err := prov.Adopt(uint32(*handle), &granted); err != nil {
		d.undo(destroySRQ, uint32(*handle), prov.Release)
		return nil, d.failedToLock(op, object, err)
	}
	srq.prov = prov
	srq.maxWR.Store(granted.MaxWR)
	srq.maxSGE = int(granted.MaxSGE)
	if number != nil {
		srq.num = *number
	}
	srq.cq = o.CQ
	srq.adopt(d, kindSRQ, uint32(*handle), srq, parents...)
	return srq, nil
}

func destroySRQ(d *Device, handle uint32) error {
	cmd := ioctl.NewSrqDestroy()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.Resp() // event counts, which nobody needs
	return cmd.Run(d.file)
}

// Num returns the number with which senders address an XRC SRQ (ibv_get_srq_num). It
// returns 0 for SRQs without a CQ of their own.
func (srq *SRQ) Num() uint32 {
	if srq == nil {
		return 0
	}
	return srq.num
}

// MaxWR returns the SRQ's capacity in receives, which is at least the requested one.
func (srq *SRQ) MaxWR() int {
	if srq == nil {
		return 0
	}
	return int(srq.maxWR.Load())
}

// MaxSGE returns the maximum number of scatter/gather entries of a receive.
func (srq *SRQ) MaxSGE() int {
	if srq == nil {
		return 0
	}
	return srq.maxSGE
}

// SetLimit arms EventSRQLimitReached (IBV_SRQ_LIMIT). The event is delivered once, when
// fewer than limit receives are left. 0 disarms it.
func (srq *SRQ) SetLimit(limit int) error {
	return srq.modify(uapi.IB_SRQ_LIMIT, 0, limit)
}

// Resize changes the capacity to at least maxWR receives (IBV_SRQ_MAX_WR). Posted receives
// stay posted.
func (srq *SRQ) Resize(maxWR int) error {
	return srq.modify(uapi.IB_SRQ_MAX_WR, maxWR, 0)
}

func (srq *SRQ) modify(mask uapi.IbSrqAttrMask, maxWR, limit int) error {
	const op = "modify SRQ"
	if err := hold(op, srq.base()); err != nil {
		return err
	}
	defer srq.drop()
	limits, err := srq.dev.deviceLimits()
	if err != nil {
		return err
	}
	resize := mask&uapi.IB_SRQ_MAX_WR != 0
	switch {
	case resize && (maxWR < 1 || maxWR > limits.MaxSRQWR):
		return invalid(op, "MaxWR %d is not in 1 to %d", maxWR, limits.MaxSRQWR)
	case limit < 0 || limit > limits.MaxSRQWR:
		return invalid(op, "Limit %d is not in 0 to %d", limit, limits.MaxSRQWR)
	case resize && limits.DeviceCapFlags&DeviceSRQResize == 0:
		return opErr(op, fmt.Sprintf("MaxWR %d", maxWR), ErrNotSupported)
	}
	srq.mu.Lock()
	defer srq.mu.Unlock()
	cmd := ioctl.NewWriteModifySrq()
	defer cmd.Release()
	*cmd.Req = uapi.IbUverbsModifySrq{
		SrqHandle: srq.handle, AttrMask: uint32(mask), MaxWr: uint32(maxWR), SrqLimit: uint32(limit),
	}
	// rxe needs its private data even to set a limit.
	if err := srq.prov.Modify(cmd); err != nil {
		return srq.dev.failed(op, "", err)
	}
	if err := cmd.Run(srq.dev.file); err != nil {
		return srq.dev.failedToLock(op, fmt.Sprintf("MaxWR %d, Limit %d", maxWR, limit), err)
	}
	if resize {
		srq.maxWR.Store(uint32(maxWR))
		if err := srq.prov.Remap(); err != nil {
			return srq.dev.failed(op, "", err)
		}
	}
	return nil
}

// Query returns the SRQ's size and limit (ibv_query_srq).
func (srq *SRQ) Query() (SRQAttr, error) {
	const op = "query SRQ"
	if err := hold(op, srq.base()); err != nil {
		return SRQAttr{}, err
	}
	defer srq.drop()
	cmd := ioctl.NewWriteQuerySrq()
	defer cmd.Release()
	cmd.Req.SrqHandle = srq.handle
	if err := cmd.Run(srq.dev.file); err != nil {
		return SRQAttr{}, srq.dev.failed(op, "", err)
	}
	return SRQAttr{MaxWR: int(cmd.Resp.MaxWr), MaxSGE: int(cmd.Resp.MaxSge), Limit: int(cmd.Resp.SrqLimit)}, nil
}

// PostRecv posts receives (ibv_post_srq_recv) and returns how many were posted, as
// QP.PostRecv does.
func (srq *SRQ) PostRecv(wrs ...RecvWR) (n int, err error) {
	if srq == nil {
		return 0, &OpError{Op: "post SRQ receive", Err: errNil}
	}
	posting()
	srq.mu.Lock()
	switch {
	case srq.prov == nil:
		err = errPostSRQClosed
	case srq.dev.removal.gone.Load():
		err = errPostSRQRemoved
	default:
		if n, err = srq.prov.PostRecv(as[provider.RecvWR](wrs)); err != nil {
			err = srqRefusals.wrap(err)
		}
	}
	srq.mu.Unlock()
	if tracing.Switch.On != 0 {
		report(tracing.PostSRQRecv, &srq.object, 0, 0, unsafe.Pointer(unsafe.SliceData(wrs)), len(wrs), n, err)
	}
	return n, err
}

var (
	errPostSRQClosed  = opErr("post SRQ receive", "", ErrClosed)
	errPostSRQRemoved = opErr("post SRQ receive", "", ErrDeviceRemoved)
)

// Close destroys the SRQ (ibv_destroy_srq). It returns ErrBusy while QPs use the SRQ.
func (srq *SRQ) Close() error {
	if srq == nil {
		return nil
	}
	if err := srq.endTags(); err != nil {
		return err
	}
	srq.mu.Lock()
	defer srq.mu.Unlock()
	return srq.base().end("destroy SRQ",
		func() error { return destroySRQ(srq.dev, srq.handle) },
		func() {
			if srq.cq != nil {
				srq.cq.forgetSRQ(srq)
			}
			srq.prov.Release()
			srq.prov = nil
		})
}
