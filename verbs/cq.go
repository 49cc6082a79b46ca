package verbs

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A CQ is a completion queue. Its methods are safe for concurrent use, unless
// it was made with CQOptions.SingleOwner.
type CQ struct {
	object
	mu    queueLock
	prov  provider.CQ // nil when closed
	cqe   int
	chn   *CompChannel
	fired chan struct{} // an event came that PollWait has not yet seen
	gone  chan struct{} // closed by Close

	waiters atomic.Int32  // goroutines in PollWait
	events  atomic.Uint32 // that came
	overran atomic.Bool   // EventCQErr came, which no Poll can see in the queue
	silent  atomic.Bool   // nothing will come any more: see silence
	timed   bool          // CQOptions.Timestamps
}

func (cq *CQ) base() *object {
	if cq == nil {
		return nil
	}
	return &cq.object
}

// CQOptions are the arguments of CreateCQ.
type CQOptions struct {
	CQE     int          // how many completions it must hold, from 1; it may be made larger
	Channel *CompChannel // where it reports events; nil for none
	Vector  int          // completion vector, from 0 to Context.NumCompVectors-1

	// What some adapters have, mlx5 among them: the bytes of a completion in the
	// queue, 64 or 128 (0: the adapter's usual), and compression, if
	// DeviceAttr.CQECompression allows it.
	CQESize     int
	Compression CQECompression

	// Timestamps is for PollTimed: it has the QPs on the CQ stamp completions by
	// Context.RawClock's counter. A device whose firmware stamps by another refuses
	// such QPs.
	Timestamps bool

	// SingleOwner promises that one goroutine at a time uses the CQ, and drops
	// its lock. A second one that is seen panics. To close a QP on the CQ, or to
	// move it to QPReset, is a use of the CQ.
	SingleOwner bool
}

// CreateCQ creates a completion queue (ibv_create_cq).
func (c *Context) CreateCQ(o CQOptions) (*CQ, error) {
	const op = "create CQ"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.done()
	limits, err := c.deviceLimits()
	if err != nil {
		return nil, err
	}
	switch {
	case o.CQE < 1 || o.CQE > limits.MaxCQE:
		return nil, invalid(op, "CQE %d is not in 1 to %d", o.CQE, limits.MaxCQE)
	case o.CQESize != 0 && o.CQESize != 64 && o.CQESize != 128:
		return nil, invalid(op, "CQESize %d is neither 64 nor 128", o.CQESize)
	case o.Compression != 0 && o.Compression&limits.CQECompression.Formats != o.Compression || o.Compression&(o.Compression-1) != 0:
		return nil, invalid(op, "compression %#x is not one of the device's %#x", uint8(o.Compression), uint8(limits.CQECompression.Formats))
	case o.Vector < 0 || o.Vector >= max(c.compVectors, 1):
		return nil, invalid(op, "completion vector %d is not in 0 to %d", o.Vector, max(c.compVectors, 1)-1)
	}
	if o.Timestamps && limits.CompletionTimestampMask == 0 {
		return nil, opErr(op, "completion times", ErrNotSupported)
	}
	var parents []*object
	if o.Channel != nil {
		if err := hold(op, o.Channel.base()); err != nil {
			return nil, err
		}
		parents = append(parents, &o.Channel.object)
	}
	cq, err := c.createCQHeld(op, &o, parents)
	if err != nil {
		drop(parents...)
	}
	return cq, err
}

func (c *Context) createCQHeld(op string, o *CQOptions, parents []*object) (*CQ, error) {
	if o.Channel != nil && o.Channel.ctx != c {
		return nil, invalid(op, "the completion channel belongs to another device context")
	}
	cq := &CQ{chn: o.Channel, fired: make(chan struct{}, 1), gone: make(chan struct{})}
	cq.mu.single, cq.timed = o.SingleOwner, o.Timestamps
	cq.id = c.newID()
	cmd := ioctl.NewCqCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Cqe(uint32(o.CQE))
	cmd.UserHandle(cq.id)
	if o.Channel != nil {
		cmd.CompChannel(o.Channel.events.fd)
	}
	cmd.CompVector(uint32(o.Vector))
	if o.Timestamps {
		cmd.Flags(uapi.IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
	}
	cqe := cmd.RespCqe()
	prov, err := c.prov.NewCQ(cmd, provider.CQInit{CQE: uint32(o.CQE), CQESize: uint32(o.CQESize), Compression: uint8(o.Compression)})
	if err != nil {
		return nil, c.failed(op, "", err)
	}
	object := fmt.Sprintf("%d CQE", o.CQE)
	if err := cmd.Run(c.file); err != nil {
		prov.Release()
		return nil, c.failedToLock(op, object, err)
	}
	cq.prov, cq.cqe = prov, int(*cqe)
	if err := prov.Adopt(uint32(*handle)); err != nil {
		destroyCQ(c, uint32(*handle))
		prov.Release()
		return nil, c.failedToLock(op, object, err)
	}
	cq.adopt(c, kindCQ, uint32(*handle), cq, parents...)
	if c.removal.gone.Load() { // perhaps before the CQ could be told
		cq.silent.Store(true)
	}
	return cq, nil
}

func destroyCQ(c *Context, handle uint32) error {
	cmd := ioctl.NewCqDestroy()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.Resp() // counts of events
	return cmd.Run(c.file)
}

// CQE returns how many completions the CQ holds.
func (cq *CQ) CQE() int {
	if cq == nil {
		return 0
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.cqe
}

// Poll takes up to len(wc) completions from the queue and returns their
// number (ibv_poll_cq), or an error if it took none. It doesn't wait and makes no
// system call.
//
// A *CQEError tells of an entry that is about no request of this process. It was
// dropped; the next Poll goes on after it.
func (cq *CQ) Poll(wc []WC) (int, error) {
	if cq == nil {
		return 0, &OpError{Op: "poll CQ", Err: errNil}
	}
	if tracing.Switch.On != 0 {
		return cq.tracedPoll(as[WC](wc))
	}
	if !cq.mu.try() {
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
	if n > 0 || err == nil && !cq.silent.Load() {
		return n, nil
	}
	return 0, cq.nothing(err)
}

// poll is Poll without its short way, as closeSend is PostSend.
func (cq *CQ) poll(wc []WC) (int, error) {
	cq.mu.Lock()
	if cq.prov == nil {
		cq.mu.Unlock()
		return 0, errPollClosed
	}
	n, err := cq.prov.Poll(as[provider.WC](wc))
	if n > 0 {
		polled()
	}
	cq.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return 0, cq.nothing(err)
}

// nothing says why nothing was polled, nil: there was nothing. It stays out of the way
// of polls that go well.
//
//go:noinline
func (cq *CQ) nothing(err error) error {
	if err != nil {
		return opErr("poll CQ", "", err)
	}
	return cq.silence()
}

// silence returns why no completions will come any more, nil: they may.
func (cq *CQ) silence() error {
	switch {
	case cq.overran.Load():
		return errPollOverran
	case cq.ctx.removal.gone.Load():
		return errPollRemoved
	}
	return nil
}

// overrun has those who poll and wait learn that completions are lost.
func (cq *CQ) overrun() {
	cq.overran.Store(true)
	cq.silent.Store(true)
	cq.wake()
}

// PollTimed is Poll that also stores, for each completion, the count of the
// device's clock at which it came: see Context.RawClock. It returns at most as
// many as there are cycles. The CQ is one made with CQOptions.Timestamps.
func (cq *CQ) PollTimed(wc []WC, cycles []uint64) (int, error) {
	if cq == nil {
		return 0, &OpError{Op: "poll CQ", Err: errNil}
	}
	most := min(len(wc), len(cycles))
	n, err := cq.pollTimed(wc[:most], cycles[:most])
	if tracing.Switch.On != 0 {
		cq.tellPoll(wc[:most], n, err)
	}
	return n, err
}

func (cq *CQ) pollTimed(wc []WC, cycles []uint64) (int, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.prov == nil {
		return 0, errPollClosed
	}
	if !cq.timed {
		return 0, errPollUntimed
	}
	n, err := cq.prov.PollTimed(as[provider.WC](wc), cycles)
	if n > 0 {
		polled()
	} else {
		err = cq.nothing(err)
	}
	return n, err
}

var errPollOverran = opErr("poll CQ", "", provider.ErrCQOverrun)

var errPollUntimed = invalid("poll CQ", "the CQ was made without CQOptions.Timestamps")

var errPollRemoved = opErr("poll CQ", "", ErrDeviceRemoved)

var errPollClosed = opErr("poll CQ", "", ErrClosed)

// Arm asks for one event on the CQ's channel, at the next completion, or with
// solicitedOnly at the next that the peer solicited or that failed
// (ibv_req_notify_cq). Completions that were in the queue before cause none:
// poll after arming.
func (cq *CQ) Arm(solicitedOnly bool) error {
	const op = "arm CQ"
	if cq == nil {
		return &OpError{Op: op, Err: errNil}
	}
	err := cq.arm(op, solicitedOnly)
	if tracing.Switch.On != 0 {
		var solicited uint32
		if solicitedOnly {
			solicited = 1
		}
		tell(tracing.Arm, &cq.object, 0, solicited, nil, 0, 0, err)
	}
	return err
}

func (cq *CQ) arm(op string, solicitedOnly bool) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.prov == nil {
		return opErr(op, "", ErrClosed)
	}
	if cq.chn == nil {
		return invalid(op, "the CQ has no completion channel")
	}
	if cq.ctx.removal.gone.Load() {
		return opErr(op, "", ErrDeviceRemoved)
	}
	if err := cq.prov.Arm(solicitedOnly, cq.events.Load()); err != nil {
		return cq.ctx.failed(op, "", err)
	}
	return nil
}

// PollWait is Poll that waits, without losing an event, until there is at
// least one completion: it polls, arms, polls again, and sleeps. Any number of
// goroutines may wait on CQs of one channel.
//
// Close ends the wait with ErrClosed, the device's removal with
// ErrDeviceRemoved. A CQ without a Channel can't be waited for: ErrInvalid.
func (cq *CQ) PollWait(ctx context.Context, wc []WC) (int, error) {
	const op = "wait for CQ"
	if ctx == nil {
		return 0, &OpError{Op: op, Err: errNoContext}
	}
	switch {
	case cq == nil:
		return 0, &OpError{Op: op, Err: errNil}
	case cq.chn == nil:
		return 0, invalid(op, "the CQ has no completion channel")
	case len(wc) == 0:
		return 0, invalid(op, "no room for a completion")
	}
	if n, err := cq.Poll(wc); n > 0 || err != nil {
		return n, err
	}
	cq.waiters.Add(1)
	defer cq.leave()
	for {
		if err := cq.Arm(false); err != nil {
			return 0, err
		}
		if n, err := cq.Poll(wc); n > 0 || err != nil {
			return n, err
		}
		if err := cq.chn.waitFor(ctx, cq); err != nil {
			return 0, cq.ctx.failed(op, "", err)
		}
		if n, err := cq.Poll(wc); n > 0 || err != nil {
			return n, err
		}
	}
}

// leave ends a PollWait. It may have used up the one event that the arming
// gave, so another waiter must look for itself, and arm again.
func (cq *CQ) leave() {
	if cq.waiters.Add(-1) > 0 {
		cq.wake()
	}
}

// wake has a PollWait look for itself.
func (cq *CQ) wake() {
	cq.fire()
	if cq.chn != nil {
		cq.chn.events.poke()
	}
}

// fire tells PollWait that an event came.
func (cq *CQ) fire() {
	select {
	case cq.fired <- struct{}{}:
	default:
	}
}

// Resize makes room for cqe completions (ibv_resize_cq). Those not yet polled
// are kept; if there are more of them than fit, the kernel may refuse.
func (cq *CQ) Resize(cqe int) error {
	const op = "resize CQ"
	if err := hold(op, cq.base()); err != nil {
		return err
	}
	defer cq.drop()
	limits, err := cq.ctx.deviceLimits()
	if err != nil {
		return err
	}
	if cqe < 1 || cqe > limits.MaxCQE || cqe > math.MaxInt32 {
		return invalid(op, "CQE %d is not in 1 to %d", cqe, limits.MaxCQE)
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cmd := ioctl.NewWriteResizeCq()
	defer cmd.Release()
	cmd.Req.CqHandle, cmd.Req.Cqe = cq.handle, uint32(cqe)
	if err := cq.prov.Resize(cmd, uint32(cqe)); err != nil {
		return cq.ctx.failed(op, "", err)
	}
	if err := cmd.Run(cq.ctx.file); err != nil {
		return cq.ctx.failedToLock(op, fmt.Sprintf("%d CQE", cqe), err)
	}
	cq.cqe = int(cmd.Resp.Cqe)
	if err := cq.prov.Remap(); err != nil {
		return cq.ctx.failed(op, "", err)
	}
	return nil
}

// forget drops the completions of a QP that was reset or destroyed. The QP holds
// the CQ.
func (cq *CQ) forget(qp *QP) {
	cq.mu.Lock()
	cq.prov.Forget(qp.prov)
	cq.mu.Unlock()
}

// forgetSRQ is forget for an XRC SRQ.
func (cq *CQ) forgetSRQ(srq *SRQ) {
	cq.mu.Lock()
	cq.prov.ForgetSRQ(srq.prov)
	cq.mu.Unlock()
}

// Close destroys the CQ (ibv_destroy_cq) with the completions in it. While
// QPs use it, it answers ErrBusy.
func (cq *CQ) Close() error {
	if cq == nil {
		return nil
	}
	// Held to the end: a poll or an arming in between would use a handle that
	// may be another object's by then.
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.base().end("destroy CQ",
		func() error { return destroyCQ(cq.ctx, cq.handle) },
		func() {
			cq.prov.Release()
			cq.prov = nil
			close(cq.gone)
			if cq.chn != nil {
				cq.chn.events.poke()
			}
		})
}
