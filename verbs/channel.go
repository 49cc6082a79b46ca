package verbs

import (
	"context"
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/ioctl"
)

// A CompChannel is a completion channel: a file descriptor on which armed CQs report
// that they have completions. Any number of CQs may share it.
type CompChannel struct {
	object
	events *eventFile
}

func (ch *CompChannel) base() *object {
	if ch == nil {
		return nil
	}
	return &ch.object
}

// CreateCompChannel creates a completion channel (ibv_create_comp_channel).
func (c *Device) CreateCompChannel() (*CompChannel, error) {
	const op = "create completion channel"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.done()
	cmd := ioctl.NewWriteCreateCompChannel()
	defer cmd.Release()
	if err := cmd.Run(c.file); err != nil {
		return nil, c.failed(op, "", err)
	}
	ch := &CompChannel{events: newEventFile(int(cmd.Resp.Fd), "completion channel of "+c.dev.Name(), c.removal.news)}
	ch.adopt(c, kindChannel, cmd.Resp.Fd, ch)
	return ch, nil
}

// Wait waits for the next event and returns its CQ (ibv_get_cq_event). Events need no
// acknowledgement. The caller must arm the CQ again, and then poll it, in this order.
// Wait must not be mixed with CQ.PollWait on the same channel.
//
// Close ends the wait with ErrClosed, the device's removal with
// ErrDeviceRemoved.
func (ch *CompChannel) Wait(ctx context.Context) (*CQ, error) {
	const op = "get CQ event"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	for {
		if err := hold(op, ch.base()); err != nil {
			return nil, err
		}
		ch.drop() // waiting must not block Close
		var b [compEventLen]byte
		if err := ch.events.read(ctx, b[:]); err != nil {
			return nil, ch.ctx.failed(op, "", err)
		}
		// Nil: the CQ was closed after the event was written.
		if cq := ch.cqOf(b); cq != nil {
			return cq, nil
		}
	}
}

// cqOf counts an event, and returns its CQ.
func (ch *CompChannel) cqOf(b [compEventLen]byte) *CQ {
	cq, _ := ch.ctx.member(binary.NativeEndian.Uint64(b[:])).(*CQ)
	if cq != nil {
		cq.events.Add(1)
	}
	return cq
}

// waitFor waits for an event of the CQ. Of the goroutines that wait on one channel,
// the one that has the turn reads the events of all.
func (ch *CompChannel) waitFor(ctx context.Context, cq *CQ) error {
	for {
		select {
		case <-cq.fired:
			return nil
		case <-cq.gone:
			return ErrClosed
		case <-ch.events.gone:
			return ErrDeviceRemoved
		case <-ctx.Done():
			return ctx.Err()
		case <-ch.events.turn:
		}
		err := ch.readFor(ctx, cq)
		ch.events.turn <- struct{}{}
		if err != nil {
			return err
		}
	}
}

// readFor reads events and passes each to its CQ, until cq has one or is closed.
func (ch *CompChannel) readFor(ctx context.Context, cq *CQ) error {
	for len(cq.fired) == 0 && !cq.closed() {
		var b [compEventLen]byte
		switch err := ch.events.readInTurn(ctx, b[:]); err {
		case nil:
		case fdwait.ErrPoked:
			continue
		default:
			return err
		}
		if other := ch.cqOf(b); other != nil {
			other.fire()
		}
	}
	return nil
}

// compEventLen is the size of struct ib_uverbs_comp_event_desc.
const compEventLen = 8

// Close destroys the channel (ibv_destroy_comp_channel) and ends waits on it. It
// returns ErrBusy while CQs use the channel.
func (ch *CompChannel) Close() error {
	return ch.base().end("destroy completion channel",
		func() error { return ch.events.Close() },
		func() {})
}
