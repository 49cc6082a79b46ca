package verbs

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/ioctl"
)

// A CompChannel is a completion channel: a file descriptor on which the kernel delivers the events
// of armed CQs. Any number of CQs may share it. Its methods are safe for concurrent use.
//
// A program needs a channel in two cases: for one goroutine that waits for many CQs with
// CompChannel.Wait, and for goroutines that wait on several busy CQs, each with its own
// channel: see CQ.PollWait.
//
// Either Wait or PollWait reads a channel's events, not both: each would take the other's
// events. The first call decides. From then on the other method returns ErrInvalid.
type CompChannel struct {
	object
	events *eventFile
	reader atomic.Uint32 // which method reads the events; 0 before the first call

	event [compEventLen]byte // buffer of the PollWait that has the token
}

// The values of CompChannel.reader.
const (
	readByWait = 1 + iota
	readByPollWait
)

// claim makes reader the channel's only reader. It returns false if the channel has the
// other reader.
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
	return d.newChannel(op)
}

func (d *Device) newChannel(op string) (*CompChannel, error) {
	cmd := ioctl.NewWriteCreateCompChannel()
	defer cmd.Release()
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, "", err)
	}
	ch := &CompChannel{events: newEventFile(int(cmd.Resp.Fd), compEventLen, "completion channel", d.removal.done)}
	ch.adopt(d, kindChannel, cmd.Resp.Fd, ch)
	return ch, nil
}

// waitChannel returns the channel of CQs that are created without one. The kernel sets a CQ's
// channel when it creates the CQ. Whether PollWait will need the channel isn't known by then.
// All such CQs share one channel, and so one descriptor per device. The channel costs nothing
// while the CQ isn't armed.
func (d *Device) waitChannel(op string) (*CompChannel, error) {
	d.waits.Lock()
	defer d.waits.Unlock()
	if d.waits.channel == nil {
		ch, err := d.newChannel(op)
		if err != nil {
			return nil, err
		}
		ch.claim(readByPollWait)
		d.waits.channel = ch
	}
	return d.waits.channel, nil
}

// Wait waits for the next event and returns its CQ (ibv_get_cq_event). Events need no
// acknowledgement. The caller must arm the CQ again, and then poll it until it is empty, in
// this order. A CQ may be empty after its event if its completions were already polled.
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
		// The channel isn't held, because waiting must not block Close.
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
		// A nil CQ was closed after the kernel wrote the event.
		if cq := ch.cqOf(b); cq != nil {
			return cq, nil
		}
	}
}

// SyscallConn returns access to the channel's file descriptor, for programs that wait with an event
// loop of their own, such as epoll. The descriptor is readable when an event waits. After Close, or
// when the driver reports the device's removal, it has an error or hangs up.
//
// Only Control works: Wait reads the events. The caller must neither close nor read the
// descriptor, nor make it blocking. The channel owns it, and Close closes it.
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

// A channelFD is a RawConn without Read and Write.
type channelFD struct{ raw syscall.RawConn }

func (fd channelFD) Control(f func(uintptr)) error {
	if err := fd.raw.Control(f); err != nil {
		return opErr(opChannelFD, "", ErrClosed)
	}
	return nil
}

func (channelFD) Read(func(uintptr) bool) error  { return errChannelFD }
func (channelFD) Write(func(uintptr) bool) error { return errChannelFD }

var errChannelFD = invalid(opChannelFD, "only CompChannel.Wait reads the descriptor, and nothing writes to it")

// cqOf counts an event on its CQ, and returns the CQ.
func (ch *CompChannel) cqOf(b [compEventLen]byte) *CQ {
	cq, _ := ch.dev.member(binary.NativeEndian.Uint64(b[:])).(*CQ)
	if cq != nil {
		cq.events.Add(1)
	}
	return cq
}

// waitFor waits for an event of the CQ. Of the goroutines that wait on one channel, the one
// that has the token reads the events of all, under readCtx in place of ctx.
func (ch *CompChannel) waitFor(ctx, readCtx context.Context, cq *CQ) error {
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
		case <-ch.events.token:
		}
		err := ch.readFor(readCtx, cq)
		ch.events.token <- struct{}{}
		if err != nil {
			return err
		}
	}
}

// readFor reads events and passes each to its CQ, until cq has one or is closed.
func (ch *CompChannel) readFor(ctx context.Context, cq *CQ) error {
	for len(cq.fired) == 0 && !cq.closed() {
		switch err := ch.events.readLocked(ctx, ch.event[:]); err {
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
