package verbs

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/ioctl"
)

// A CompChannel is a completion channel: a file descriptor on which armed CQs report
// that they have completions. Any number of CQs may share it. Its methods are safe for
// concurrent use.
//
// A program needs a channel in two cases. With CompChannel.Wait, one goroutine waits for
// many CQs. With a channel each, the goroutines in CQ.PollWait on several CQs don't
// depend on each other: see CQ.PollWait.
//
// A channel's events are for Wait or for PollWait, not for both, because each would take
// events that the other one waits for. The first call determines which. The other
// method returns ErrInvalid from then on.
type CompChannel struct {
	object
	events *eventFile
	reader atomic.Uint32 // who reads the events: 0 as long as nobody has

	event [compEventLen]byte // read by the PollWait that has the turn
}

// The values of CompChannel.reader.
const (
	readByWait = 1 + iota
	readByPollWait
)

// claim makes a reader the one that reads the channel's events. It returns false if
// that is another one already.
func (ch *CompChannel) claim(reader uint32) bool {
	return ch.reader.Load() == reader || ch.reader.CompareAndSwap(0, reader) || ch.reader.Load() == reader
}

func (ch *CompChannel) base() *object {
	if ch == nil {
		return nil
	}
	return &ch.object
}

// CreateCompChannel creates a completion channel (ibv_create_comp_channel).
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	const op = "create completion channel"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	return d.createChannelHeld(op)
}

func (d *Device) createChannelHeld(op string) (*CompChannel, error) {
	cmd := ioctl.NewWriteCreateCompChannel()
	defer cmd.Release()
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, "", err)
	}
	ch := &CompChannel{events: newEventFile(int(cmd.Resp.Fd), compEventLen, "completion channel", d.removal.news)}
	ch.adopt(d, kindChannel, cmd.Resp.Fd, ch)
	return ch, nil
}

// waitChannel returns the channel for CQs that the caller gives none. The kernel can
// give a CQ a channel only when it creates it, and whether PollWait will need one isn't
// known then. One channel for all of them costs a device one descriptor. A channel
// costs nothing as long as the CQ isn't armed.
func (d *Device) waitChannel(op string) (*CompChannel, error) {
	d.waits.Lock()
	defer d.waits.Unlock()
	if d.waits.channel == nil {
		ch, err := d.createChannelHeld(op)
		if err != nil {
			return nil, err
		}
		ch.claim(readByPollWait)
		d.waits.channel = ch
	}
	return d.waits.channel, nil
}

// Wait waits for the next event and returns its CQ (ibv_get_cq_event). Events need no
// acknowledgement. The caller must arm the CQ again, and then poll it until it is empty,
// in this order. A CQ may be empty in spite of its event, if its completions were polled
// before.
//
// If ctx ends, no event is lost: the next Wait returns it. Close ends the wait with
// ErrClosed, the device's removal with ErrDeviceRemoved. After CQ.PollWait on a CQ of
// the channel, Wait returns ErrInvalid.
func (ch *CompChannel) Wait(ctx context.Context) (*CQ, error) {
	const op = "get CQ event"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	for {
		// Not held: waiting must not block Close.
		if err := ch.base().usable(op); err != nil {
			return nil, err
		}
		if !ch.claim(readByWait) {
			return nil, invalid(op, "CQ.PollWait reads this channel's events")
		}
		var b [compEventLen]byte
		if err := ch.events.read(ctx, b[:]); err != nil {
			return nil, ch.dev.failed(op, "", err)
		}
		// Nil: the CQ was closed after the event was written.
		if cq := ch.cqOf(b); cq != nil {
			return cq, nil
		}
	}
}

// SyscallConn returns access to the channel's file descriptor, for programs that wait
// with an event loop of their own, such as epoll. The descriptor is readable when Wait
// would not block because of an event. When Close ends, or when the driver reports the
// device's removal, it has an error or hangs up.
//
// Only Control works: Wait takes the events. The caller must neither close nor read the
// descriptor, nor make it blocking. It belongs to the channel, and is closed by Close.
func (ch *CompChannel) SyscallConn() (syscall.RawConn, error) {
	if err := hold(opChannelFD, ch.base()); err != nil {
		return nil, err
	}
	defer ch.drop()
	file := ch.events.pollable()
	if file == nil {
		return nil, opErr(opChannelFD, "", ErrClosed)
	}
	return channelFD{ch.events.conn}, nil
}

const opChannelFD = "use completion channel's descriptor"

// A channelFD is a descriptor without its Read and Write.
type channelFD struct{ raw syscall.RawConn }

func (fd channelFD) Control(f func(uintptr)) error {
	if err := fd.raw.Control(f); err != nil {
		return opErr(opChannelFD, "", ErrClosed)
	}
	return nil
}

func (channelFD) Read(func(uintptr) bool) error  { return errChannelFD }
func (channelFD) Write(func(uintptr) bool) error { return errChannelFD }

var errChannelFD = invalid(opChannelFD, "only CompChannel.Wait reads it, and nobody writes")

// cqOf counts an event, and returns its CQ.
func (ch *CompChannel) cqOf(b [compEventLen]byte) *CQ {
	cq, _ := ch.dev.member(binary.NativeEndian.Uint64(b[:])).(*CQ)
	if cq != nil {
		cq.events.Add(1)
	}
	return cq
}

// waitFor waits for an event of the CQ. Of the goroutines that wait on one channel,
// the one that has the turn reads the events of all, with its context inTurn.
func (ch *CompChannel) waitFor(ctx, inTurn context.Context, cq *CQ) error {
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
		err := ch.readFor(inTurn, cq)
		ch.events.turn <- struct{}{}
		if err != nil {
			return err
		}
	}
}

// readFor reads events and passes each to its CQ, until cq has one or is closed.
func (ch *CompChannel) readFor(ctx context.Context, cq *CQ) error {
	for len(cq.fired) == 0 && !cq.closed() {
		switch err := ch.events.readInTurn(ctx, ch.event[:]); err {
		case nil:
		case fdwait.ErrPoked:
			continue
		default:
			return err
		}
		if other := ch.cqOf(ch.event); other != nil {
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
