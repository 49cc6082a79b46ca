package verbs

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A CQ is a completion queue. Its methods are safe for concurrent use, unless it was
// created with CQOptions.SingleOwner.
type CQ struct {
	object
	mu    queueLock
	prov  provider.CQ // nil when closed
	cqe   int
	chn   *CompChannel  // nil if the CQ has none: see noChannel
	fired chan struct{} // holds a token when there is an event for PollWait
	gone  chan struct{} // closed by Close

	waiters atomic.Int32  // goroutines in PollWait
	events  atomic.Uint32 // the number of events so far
	overran atomic.Bool   // EventCQErr was delivered; the queue itself doesn't show an overrun
	silent  atomic.Bool   // there will be no more completions: see ended

	ex           provider.ExPoller // prov, if CQOptions.Fields isn't 0
	pollWaitOnly bool              // CQOptions had no channel: only PollWait arms the CQ
	noChannel    error             // why there is no channel for PollWait, or nil
	value        any               // CQOptions.Value
}

func (cq *CQ) base() *object {
	if cq == nil {
		return nil
	}
	return &cq.object
}

// CQOptions are the arguments of CreateCQ.
type CQOptions struct {
	MaxCQE int // minimum capacity in completions, from 1
	Vector int // completion vector, 0 to Device.NumCompVectors-1

	// Channel is the completion channel for the CQ's events. PollWait needs none. Where the
	// kernel can't make channels, as in a gVisor sandbox, the CQ can only be polled.
	Channel *CompChannel

	// PollOnly promises that neither PollWait nor Arm is called. On efa, it saves the
	// doorbell after each poll. Other devices ignore it.
	PollOnly bool

	// Value is the caller's own data, which CQ.Value returns.
	Value any

	// CQESize is the size of a completion in the queue, 64 or 128 bytes, or 0 for the
	// default. Compression is a format that DeviceAttr.CQECompression allows. Only some
	// adapters, such as mlx5, support these.
	CQESize     int
	Compression CQECompression // see CQESize

	// Fields selects the fields of WCEx that PollEx reports in addition to those of WC.
	// Poll works on such a CQ, too.
	Fields WCFields

	// SingleOwner promises that only one goroutine at a time uses the CQ, and removes its
	// lock. A second goroutine panics if it is detected. Closing a QP on the CQ, or moving
	// the QP to QPReset, counts as a use of the CQ.
	SingleOwner bool
}

// CreateCQ creates a completion queue (ibv_create_cq).
func (d *Device) CreateCQ(o CQOptions) (*CQ, error) { return d.createCQ("create CQ", o, nil) }

// createCQ is like CreateCQ, with extra options for the provider.
func (d *Device) createCQ(op string, o CQOptions, extra any) (*CQ, error) {
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	limits, err := d.deviceLimits()
	if err != nil {
		return nil, err
	}
	switch {
	case o.MaxCQE < 1 || o.MaxCQE > limits.MaxCQE:
		return nil, invalid(op, "MaxCQE %d is not in 1 to %d", o.MaxCQE, limits.MaxCQE)
	case o.CQESize != 0 && o.CQESize != 64 && o.CQESize != 128:
		return nil, invalid(op, "CQESize %d is neither 64 nor 128", o.CQESize)
	case o.Compression != 0 && o.Compression&limits.CQECompression.Formats != o.Compression || o.Compression&(o.Compression-1) != 0:
		return nil, invalid(op, "compression %#x is not one of the device's %#x", uint8(o.Compression), uint8(limits.CQECompression.Formats))
	case o.Vector < 0 || o.Vector >= max(d.compVectors, 1):
		return nil, invalid(op, "completion vector %d is not in 0 to %d", o.Vector, max(d.compVectors, 1)-1)
	}
	if x := o.Fields &^ wcFieldsKnown; x != 0 {
		return nil, invalid(op, "unknown fields %#x", uint32(x))
	}
	if o.Fields&wcFieldsTime != 0 && limits.CompletionTimestampMask == 0 {
		return nil, noFields(op, o.Fields&wcFieldsTime)
	}
	channel := o.Channel
	var noChannel error
	switch {
	case channel != nil && o.PollOnly:
		return nil, invalid(op, "both PollOnly and Channel are set")
	case o.PollOnly:
		noChannel = errPollOnly
	case channel == nil:
		if channel, err = d.waitChannel(op); err != nil {
			if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, ErrNotSupported) {
				return nil, err
			}
			noChannel = err
		}
	}
	var parents []*object
	if channel != nil {
		parents = append(parents, channel.base())
	}
	cq, err := create(op, parents, func() (*CQ, error) { return d.newCQ(op, &o, extra, channel, parents) })
	if err != nil {
		return nil, err
	}
	cq.noChannel = noChannel
	return cq, nil
}

func (d *Device) newCQ(op string, o *CQOptions, extra any, channel *CompChannel, parents []*object) (*CQ, error) {
	if channel != nil && channel.dev != d {
		return nil, invalid(op, "the completion channel belongs to another Device")
	}
	cq := &CQ{chn: channel, pollWaitOnly: o.Channel == nil, fired: make(chan struct{}, 1), gone: make(chan struct{}), value: o.Value}
	cq.mu.single = o.SingleOwner
	cq.id = d.newID()
	cmd := ioctl.NewCqCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.UserHandle(cq.id)
	if channel != nil {
		cmd.CompChannel(channel.events.fd)
	}
	cmd.CompVector(uint32(o.Vector))
	if o.Fields&wcFieldsTime != 0 {
		cmd.Flags(uapi.IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
	}
	cqe := cmd.RespCqe()
	init := provider.CQInit{
		CQE: uint32(o.MaxCQE), CQESize: uint32(o.CQESize), Compression: uint8(o.Compression), Fields: provider.Fields(o.Fields),
		Channel: channel != nil, Extra: extra,
	}
	prov, err := d.prov.NewCQ(cmd, &init)
	switch {
	case err == provider.ErrNoField:
		return nil, noFields(op, o.Fields)
	case err != nil:
		return nil, d.failed(op, "", err)
	}
	if o.Fields != 0 {
		var ok bool
		if cq.ex, ok = prov.(provider.ExPoller); !ok {
			prov.Release()
			return nil, noFields(op, o.Fields)
		}
	}
	cmd.Cqe(init.CQE)
	object := fmt.Sprintf("%d CQE", o.MaxCQE)
	if err := cmd.Run(d.file); err != nil {
		prov.Release()
		return nil, d.failedToLock(op, object, err)
	}
	cq.prov, cq.cqe = prov, int(*cqe)
	if err := prov.Adopt(uint32(*handle)); err != nil {
		d.undo(destroyCQ, uint32(*handle), prov.Release)
		return nil, d.failedToLock(op, object, err)
	}
	cq.adopt(d, kindCQ, uint32(*handle), cq, parents...)
	if d.removal.gone.Load() { // deviceGone may have missed the new CQ
		cq.silent.Store(true)
	}
	return cq, nil
}

// noFields refuses fields that the device doesn't have.
func noFields(op string, f WCFields) error {
	return opErr(op, "with "+f.String(), ErrNotSupported)
}

func destroyCQ(d *Device, handle uint32) error {
	cmd := ioctl.NewCqDestroy()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.Resp() // event counts, which nobody needs
	return cmd.Run(d.file)
}

// MaxCQE returns the CQ's capacity in completions.
func (cq *CQ) MaxCQE() int {
	if cq == nil {
		return 0
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.cqe
}

// Value returns CQOptions.Value. A caller of CompChannel.Wait identifies the CQ by it.
func (cq *CQ) Value() any {
	if cq == nil {
		return nil
	}
	return cq.value
}

// Poll removes up to len(wc) completions from the queue and returns their number
// (ibv_poll_cq), or an error if it removed none. It neither waits nor makes a system call.
// A failed request is not an error of Poll: its completion's Err returns the error.
//
// The errors match
//   - a *CQEError: an entry matches no request of this process. Poll drops the entry, and
//     the next Poll continues after it.
//   - ErrCQOverrun: the CQ had no room for a completion, so completions are lost. Earlier
//     completions are returned first.
//   - ErrDeviceRemoved: the device is gone. Earlier completions are returned first.
//   - ErrClosed: the CQ is closed.
//
// Any other error means that the queue can't be read any more.
func (cq *CQ) Poll(wc []WC) (int, error) {
	if cq == nil {
		return 0, &OpError{Op: "poll CQ", Err: errNil}
	}
	if tracing.Switch.On != 0 {
		return cq.tracedPoll(as[WC](wc))
	}
	if cq.silent.Load() || !cq.mu.try() {
		return cq.poll(as[WC](wc))
	}
	if cq.prov == nil {
		cq.mu.Unlock()
		return 0, errPollClosed
	}
	n, err := cq.prov.Poll(as[provider.WC](wc))
	if n > 0 {
		polled()
	}
	cq.mu.Unlock()
	if err == nil || n > 0 {
		return n, nil
	}
	return 0, pollErr(err)
}

// pollErr returns the error of a poll. It is not inlined, to keep the code of successful polls
// small.
//
//go:noinline
func pollErr(err error) error { return opErr("poll CQ", "", err) }

// poll is like Poll, but without the short path. It reads the CQ's error before it polls, so
// that earlier completions are returned first.
func (cq *CQ) poll(wc []WC) (int, error) {
	cq.mu.Lock()
	if cq.prov == nil {
		cq.mu.Unlock()
		return 0, errPollClosed
	}
	ended := cq.ended()
	n, err := cq.prov.Poll(as[provider.WC](wc))
	if n > 0 {
		polled()
	}
	cq.mu.Unlock()
	switch {
	case n > 0:
		return n, nil
	case err != nil:
		return 0, pollErr(err)
	}
	return 0, ended
}

// ended returns why the CQ will get no more completions, or nil if it may get some.
func (cq *CQ) ended() error {
	switch {
	case cq.overran.Load():
		return errPollOverran
	case cq.dev.removal.gone.Load():
		return errPollRemoved
	}
	return nil
}

// overrun makes pollers and waiters return ErrCQOverrun.
func (cq *CQ) overrun() {
	cq.overran.Store(true)
	cq.silent.Store(true)
	cq.wake()
}

var errPollOnly = errors.New("the CQ was created with PollOnly")

var errPollOverran = opErr("poll CQ", "", provider.ErrCQOverrun)

var errPollRemoved = opErr("poll CQ", "", ErrDeviceRemoved)

var errPollClosed = opErr("poll CQ", "", ErrClosed)

// Arm makes the next completion cause one event (ibv_req_notify_cq). CompChannel.Wait returns
// the event. With solicitedOnly, only a completion that the peer solicited, or one with an
// error, causes the event. Completions already in the queue cause no event, so poll after
// arming. PollWait needs no Arm.
//
// On a CQ without CQOptions.Channel, Arm returns ErrInvalid: nobody would see the event.
func (cq *CQ) Arm(solicitedOnly bool) error {
	const op = "arm CQ"
	switch {
	case cq == nil:
		return &OpError{Op: op, Err: errNil}
	case cq.pollWaitOnly:
		return invalid(op, "the CQ has no completion channel")
	}
	return cq.arm(op, solicitedOnly)
}

func (cq *CQ) arm(op string, solicitedOnly bool) error {
	err := cq.armLocked(op, solicitedOnly)
	if tracing.Switch.On != 0 {
		var solicited uint32
		if solicitedOnly {
			solicited = 1
		}
		report(tracing.Arm, &cq.object, 0, solicited, nil, 0, 0, err)
	}
	return err
}

func (cq *CQ) armLocked(op string, solicitedOnly bool) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.prov == nil {
		return opErr(op, "", ErrClosed)
	}
	if cq.dev.removal.gone.Load() {
		return opErr(op, "", ErrDeviceRemoved)
	}
	if err := cq.prov.Arm(solicitedOnly, cq.events.Load()); err != nil {
		return cq.dev.failed(op, "", err)
	}
	return nil
}

// Resize changes the CQ's capacity to at least cqe completions (ibv_resize_cq). Completions
// in the queue are kept. If they don't fit, the kernel may refuse.
func (cq *CQ) Resize(cqe int) error {
	const op = "resize CQ"
	if err := hold(op, cq.base()); err != nil {
		return err
	}
	defer cq.drop()
	limits, err := cq.dev.deviceLimits()
	if err != nil {
		return err
	}
	if cqe < 1 || cqe > limits.MaxCQE || cqe > math.MaxInt32 {
		return invalid(op, "MaxCQE %d is not in 1 to %d", cqe, limits.MaxCQE)
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cmd := ioctl.NewWriteResizeCq()
	defer cmd.Release()
	cmd.Req.CqHandle, cmd.Req.Cqe = cq.handle, uint32(cqe)
	if err := cq.prov.Resize(cmd, uint32(cqe)); err != nil {
		return cq.dev.failed(op, "", err)
	}
	if err := cmd.Run(cq.dev.file); err != nil {
		return cq.dev.failedToLock(op, fmt.Sprintf("%d CQE", cqe), err)
	}
	cq.cqe = int(cmd.Resp.Cqe)
	if err := cq.prov.Remap(); err != nil {
		return cq.dev.failed(op, "", err)
	}
	return nil
}

// forget drops the completions of a QP that was reset or destroyed. The QP holds the CQ.
func (cq *CQ) forget(qp *QP) {
	cq.mu.Lock()
	cq.prov.Forget(qp.prov)
	cq.mu.Unlock()
}

// forgetSRQ drops the completions of an XRC SRQ, as forget does for a QP.
func (cq *CQ) forgetSRQ(srq *SRQ) {
	cq.mu.Lock()
	cq.prov.ForgetSRQ(srq.prov)
	cq.mu.Unlock()
}

// Close destroys the CQ (ibv_destroy_cq) and the completions in it. It returns
// ErrBusy while QPs use the CQ.
func (cq *CQ) Close() error {
	if cq == nil {
		return nil
	}
	// The lock is held until the end. Otherwise a poll or an Arm in between could use a
	// handle that already belongs to another object.
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.base().end("destroy CQ",
		func() error { return destroyCQ(cq.dev, cq.handle) },
		func() {
			cq.prov.Release()
			cq.prov = nil
			close(cq.gone)
			if cq.chn != nil {
				cq.chn.events.poke()
			}
		})
}
