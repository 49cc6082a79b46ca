package verbs

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A WQ is a receive work queue: a queue of receives for packets, without a QP (struct ibv_wq).
// An IndirectionTable lists WQs, and a QP of PD.CreateRSSQP spreads packets over them. So each
// WQ can have its own goroutine. Its methods are safe for concurrent use, unless it was
// created with WQOptions.SingleOwner.
type WQ struct {
	object
	mu    queueLock
	prov  provider.WQ // nil when closed
	cq    *CQ
	num   uint32
	state atomic.Uint32 // WQState; changed under mu
	size  provider.WQInit
}

func (wq *WQ) base() *object {
	if wq == nil {
		return nil
	}
	return &wq.object
}

// A WQState is a WQ's state (enum ibv_wq_state).
type WQState uint32

const (
	WQReset WQState = WQState(uapi.IB_WQS_RESET) // new; nothing can be posted
	WQReady WQState = WQState(uapi.IB_WQS_RDY)   // receives can be posted, and are consumed
	WQErr   WQState = WQState(uapi.IB_WQS_ERR)   // all receives are flushed
)

func (s WQState) String() string { return uapi.EnumIbWqState.Short(uint64(s)) }

// WQFlags change what a WQ does (IBV_WQ_FLAGS_*). Each needs a capability of
// DeviceAttr.RawPacketCaps or DeviceAttr.DeviceCapFlagsEx.
type WQFlags uint32

const (
	WQStripCVLAN WQFlags = WQFlags(uapi.IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING)       // remove the VLAN tag from received frames
	WQScatterFCS WQFlags = WQFlags(uapi.IB_UVERBS_WQ_FLAGS_SCATTER_FCS)           // leave the frame check sequence in received frames
	WQDelayDrop  WQFlags = WQFlags(uapi.IB_UVERBS_WQ_FLAGS_DELAY_DROP)            // wait a while before dropping a frame for want of a receive
	WQPadWrites  WQFlags = WQFlags(uapi.IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING) // as QPPadWrites

	wqFlagsKnown = WQStripCVLAN | WQScatterFCS | WQDelayDrop | WQPadWrites
)

// String returns the flags' names joined with "|".
func (f WQFlags) String() string { return uapi.EnumIbUverbsWqFlags.Short(uint64(f)) }

// WQOptions are the arguments of CreateWQ.
type WQOptions struct {
	CQ     *CQ     // for the receives' completions
	MaxWR  int     // minimum capacity in receives, from 1
	MaxSGE int     // minimum number of scatter/gather entries of a receive; 0 stands for 1
	Flags  WQFlags // zero or more flags

	// SingleOwner promises that only one goroutine at a time posts, and removes the lock. A
	// second goroutine panics if it is detected.
	SingleOwner bool
}

// wqs returns the provider as a provider.WQMaker.
func (d *Device) wqs(op string) (provider.WQMaker, error) {
	maker, ok := d.prov.(provider.WQMaker)
	if !ok {
		return nil, opErr(op, d.info.name, ErrNotSupported)
	}
	return maker, nil
}

// CreateWQ creates a work queue in the state WQReset (ibv_create_wq). Only mlx5 has work
// queues, on Ethernet ports; elsewhere the error is ErrNotSupported.
func (pd *PD) CreateWQ(o WQOptions) (*WQ, error) {
	const op = "create WQ"
	parents := []*object{pd.base(), o.CQ.base()}
	return create(op, parents, func() (*WQ, error) { return pd.newWQ(op, &o, parents) })
}

func (pd *PD) newWQ(op string, o *WQOptions, parents []*object) (*WQ, error) {
	d := pd.dev
	maker, err := d.wqs(op)
	if err != nil {
		return nil, err
	}
	limits, err := d.deviceLimits()
	if err != nil {
		return nil, err
	}
	switch {
	case limits.MaxWQTypeRQ == 0:
		return nil, opErr(op, d.info.name, ErrNotSupported)
	case o.MaxWR < 1 || o.MaxWR > limits.MaxQPWR:
		return nil, invalid(op, "MaxWR %d is not in 1 to %d", o.MaxWR, limits.MaxQPWR)
	case o.MaxSGE < 0 || o.MaxSGE > limits.MaxSGE:
		return nil, invalid(op, "MaxSGE %d is not in 0 to %d", o.MaxSGE, limits.MaxSGE)
	case o.Flags&^wqFlagsKnown != 0:
		return nil, invalid(op, "unknown flags %#x", uint32(o.Flags&^wqFlagsKnown))
	}
	wq := &WQ{cq: o.CQ}
	wq.mu.single = o.SingleOwner
	wq.id = d.newID()
	init := provider.WQInit{MaxWR: uint32(o.MaxWR), MaxSGE: uint32(max(o.MaxSGE, 1)), CQ: o.CQ.prov}
	cmd := ioctl.NewWqCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.PdHandle(pd.handle)
	cmd.Type(uapi.IB_UVERBS_WQT_RQ)
	cmd.UserHandle(wq.id)
	cmd.MaxWr(init.MaxWR)
	cmd.MaxSge(init.MaxSGE)
	cmd.Flags(uapi.IbUverbsWqFlags(o.Flags))
	cmd.CqHandle(o.CQ.handle)
	maxWR, maxSGE, num := cmd.RespMaxWr(), cmd.RespMaxSge(), cmd.RespWqNum()
	prov, err := maker.NewWQ(cmd, init)
	switch {
	case err == provider.ErrNoWQ:
		return nil, opErr(op, d.info.name, ErrNotSupported)
	case err != nil:
		return nil, d.failed(op, "", err)
	}
	object := fmt.Sprintf("%d WR, %d SGE", o.MaxWR, init.MaxSGE)
	if err := cmd.Run(d.file); err != nil {
		prov.Release()
		return nil, d.failedToLock(op, object, err)
	}
	wq.num, wq.size = *num, provider.WQInit{MaxWR: *maxWR, MaxSGE: *maxSGE}
	if err := prov.Adopt(uint32(*handle), wq.num, &wq.size); err != nil {
		d.undo(destroyWQ, uint32(*handle), prov.Release)
		return nil, d.failedToLock(op, object, err)
	}
	wq.prov = prov
	wq.adopt(d, kindWQ, uint32(*handle), wq, parents...)
	return wq, nil
}

func destroyWQ(d *Device, handle uint32) error {
	cmd := ioctl.NewWqDestroy()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.Resp() // an event count, which nobody needs
	return cmd.Run(d.file)
}

// Num returns the queue's number, which is the QPNum of its completions.
func (wq *WQ) Num() uint32 {
	if wq == nil {
		return 0
	}
	return wq.num
}

// MaxWR returns the capacity in receives, which is at least the requested one.
func (wq *WQ) MaxWR() int {
	if wq == nil {
		return 0
	}
	return int(wq.size.MaxWR)
}

// MaxSGE returns the maximum number of scatter/gather entries of a receive.
func (wq *WQ) MaxSGE() int {
	if wq == nil {
		return 0
	}
	return int(wq.size.MaxSGE)
}

// State returns the state as of the last SetState. After EventWQFatal the queue is in WQErr;
// State doesn't show that.
func (wq *WQ) State() WQState {
	if wq == nil {
		return WQReset
	}
	return WQState(wq.state.Load())
}

// SetState moves the queue to another state (ibv_modify_wq with IBV_WQ_ATTR_STATE). A move to
// WQReset empties the queue, and drops its completions from the CQ.
func (wq *WQ) SetState(to WQState) error {
	const op = "modify WQ"
	if to > WQErr {
		return invalid(op, "there is no state %d", uint32(to))
	}
	if err := hold(op, wq.base()); err != nil {
		return err
	}
	defer wq.drop()
	wq.mu.Lock()
	defer wq.mu.Unlock()
	cmd := ioctl.NewWriteExModifyWq()
	defer cmd.Release()
	cmd.Req.AttrMask, cmd.Req.WqState = uint32(uapi.IB_WQ_STATE|uapi.IB_WQ_CUR_STATE), uint32(to)
	cmd.Req.CurrWqState = wq.state.Load()
	if err := wq.modify(op, cmd, fmt.Sprintf("%v to %v", wq.State(), to)); err != nil {
		return err
	}
	wq.state.Store(uint32(to))
	if to == WQReset {
		wq.forget()
		wq.prov.Reset()
	}
	return nil
}

// SetFlags changes the flags in mask (ibv_modify_wq with IBV_WQ_ATTR_FLAGS). With mlx5 only
// WQStripCVLAN can be changed, in WQReady.
func (wq *WQ) SetFlags(flags, mask WQFlags) error {
	const op = "modify WQ"
	if x := (flags | mask) &^ wqFlagsKnown; x != 0 {
		return invalid(op, "unknown flags %#x", uint32(x))
	}
	if err := hold(op, wq.base()); err != nil {
		return err
	}
	defer wq.drop()
	cmd := ioctl.NewWriteExModifyWq()
	defer cmd.Release()
	cmd.Req.AttrMask, cmd.Req.Flags, cmd.Req.FlagsMask = uint32(uapi.IB_WQ_FLAGS), uint32(flags), uint32(mask)
	return wq.modify(op, cmd, mask.String())
}

func (wq *WQ) modify(op string, cmd ioctl.WriteExModifyWq, object string) error {
	cmd.Req.WqHandle = wq.handle
	wq.prov.Modify(cmd)
	if err := cmd.Run(wq.dev.file); err != nil {
		return wq.dev.failed(op, object, err)
	}
	return nil
}

// forget drops the queue's completions from the CQ.
func (wq *WQ) forget() {
	if f, ok := wq.cq.prov.(provider.WQForgetter); ok {
		wq.cq.mu.Lock()
		f.ForgetWQ(wq.prov)
		wq.cq.mu.Unlock()
	}
}

var (
	wqRefusals      = newRefusals("post WQ receive")
	errPostWQNil    = &OpError{Op: "post WQ receive", Err: errNil}
	errPostWQClosed = opErr("post WQ receive", "", ErrClosed)
	errPostWQGone   = opErr("post WQ receive", "", ErrDeviceRemoved)
	errPostWQReset  = invalid("post WQ receive", "the WQ is in WQReset")
)

// PostRecv posts receives (ibv_post_wq_recv) and returns how many were posted, as QP.PostRecv
// does.
func (wq *WQ) PostRecv(wrs ...RecvWR) (n int, err error) {
	if wq == nil {
		return 0, errPostWQNil
	}
	posting()
	wq.mu.Lock()
	switch {
	case wq.prov == nil:
		err = errPostWQClosed
	case wq.dev.removal.gone.Load():
		err = errPostWQGone
	case wq.State() == WQReset:
		err = errPostWQReset
	default:
		if n, err = wq.prov.PostRecv(as[provider.RecvWR](wrs)); err != nil {
			err = wqRefusals.wrap(err)
		}
	}
	wq.mu.Unlock()
	return n, err
}

// Close destroys the WQ (ibv_destroy_wq). It returns ErrBusy while an IndirectionTable lists
// the WQ.
func (wq *WQ) Close() error {
	if wq == nil {
		return nil
	}
	wq.mu.Lock()
	defer wq.mu.Unlock()
	return wq.base().end("destroy WQ",
		func() error { return destroyWQ(wq.dev, wq.handle) },
		func() {
			wq.forget()
			wq.prov.Release()
			wq.prov = nil
		})
}
