package mlx5dv

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A channel is a file from which the kernel's events are read. A wait blocks no thread.
type channel struct {
	object driverapi.Object
	file   *os.File
	turn   chan struct{} // holds a token: one goroutine reads at a time
}

// adopt makes a channel of the file of a call.
func adopt(call *driverapi.Call, name, op string, fd int) *channel {
	setNonblock(fd)
	c := &channel{file: os.NewFile(uintptr(fd), name), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	c.object = call.Adopt(driverapi.Made{
		Name: name, Op: op,
		Destroy: func(*ioctl.File, uint32) error { return c.file.Close() },
	})
	return c
}

// read reads the kernel's next event: its first 8 bytes as a number, and the rest.
func (c *channel) read(ctx context.Context, op string, room int) (uint64, []byte, error) {
	fail := func(err error) (uint64, []byte, error) { return 0, nil, &verbs.OpError{Op: op, Err: err} }
	switch {
	case ctx == nil:
		return fail(verbs.ErrInvalid)
	case c == nil:
		return fail(verbs.ErrClosed)
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	defer func() { c.turn <- struct{}{} }()
	b := make([]byte, 8+room)
	n := 0
	err := fdwait.Wait(ctx, c.file, func() (err error) {
		n, err = c.file.Read(b)
		return err
	})
	switch {
	case errors.Is(err, os.ErrClosed):
		return fail(verbs.ErrClosed)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EIO):
		return fail(verbs.ErrDeviceRemoved)
	case err != nil:
		return fail(err)
	case n < 8:
		return fail(io.ErrUnexpectedEOF)
	}
	return binary.NativeEndian.Uint64(b), b[8:n], nil
}

func (c *channel) close() error {
	if c == nil {
		return nil
	}
	return c.object.Close()
}

// An EventChannel delivers the adapter's events that the program has subscribed to (struct
// mlx5dv_devx_event_channel). Its methods are safe for concurrent use.
type EventChannel struct{ *channel }

// An Event is an event of an EventChannel.
type Event struct {
	Cookie uint64 // that of the subscription
	EQE    []byte // the event as the adapter has written it, 64 bytes; nil without data
}

// NewEventChannel makes a channel for events (mlx5dv_devx_create_event_channel). With
// omitData, it delivers only the cookies. It merges events whose cookie equals that of an
// unread event.
func NewEventChannel(dev *verbs.Device, omitData bool) (*EventChannel, error) {
	call, err := beginDEVX("create DEVX event channel", dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxAsyncEventFdAlloc()
	defer cmd.Release()
	fd := cmd.Handle()
	var flags uapi.Mlx5IbUapiDevxCreateEventChannelFlags
	if omitData {
		flags = uapi.MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA
	}
	cmd.Flags(flags)
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	return &EventChannel{adopt(call, "DEVX events", "destroy DEVX event channel", int(int64(*fd)))}, nil
}

// Subscribe makes the channel deliver events of these types (MLX5_EVENT_TYPE_*, such as 9,
// a port's change): the events of o, or those without an object if o is nil
// (mlx5dv_devx_subscribe_devx_event).
func (c *EventChannel) Subscribe(o *Object, cookie uint64, types ...uint16) error {
	return c.subscribe(o, nil, cookie, types)
}

// SubscribeFD is like Subscribe, but for one type, whose events signal an eventfd instead of
// the channel (mlx5dv_devx_subscribe_devx_event_fd).
func (c *EventChannel) SubscribeFD(o *Object, eventfd *os.File, typ uint16) error {
	if eventfd == nil {
		return invalid("subscribe to DEVX events", "the eventfd is nil")
	}
	return c.subscribe(o, eventfd, 0, []uint16{typ})
}

func (c *EventChannel) subscribe(o *Object, eventfd *os.File, cookie uint64, types []uint16) error {
	const op = "subscribe to DEVX events"
	switch {
	case c == nil:
		return invalid(op, "the channel is nil")
	case len(types) == 0:
		return invalid(op, "no types")
	}
	on := []io.Closer{c.object}
	if o != nil {
		on = append(on, o.object)
	}
	call, err := beginDEVX(op, on...)
	if err != nil {
		return err
	}
	defer call.Done()
	raw, err := c.file.SyscallConn()
	if err != nil {
		return call.Fail("", err)
	}
	cmd := ioctl.NewMlx5DevxSubscribeEvent()
	defer cmd.Release()
	if o != nil {
		cmd.ObjHandle(call.Handles[1])
	}
	cmd.TypeNumList(types)
	if eventfd != nil {
		cmd.FdNum(uint32(eventfd.Fd()))
	} else {
		cmd.Cookie(cookie)
	}
	if err := withFD(raw, func(fd int) error {
		cmd.FdHandle(fd)
		return cmd.Run(call.File)
	}); err != nil {
		return call.Fail("", err)
	}
	return nil
}

// withFD runs a command with a channel's file descriptor. The file stays open meanwhile.
func withFD(raw syscall.RawConn, run func(fd int) error) (err error) {
	if closed := raw.Control(func(fd uintptr) { err = run(int(fd)) }); closed != nil {
		return verbs.ErrClosed
	}
	return err
}

// Wait waits for an event (mlx5dv_devx_get_event). If ctx ends first, no event is lost. Close
// ends the wait with verbs.ErrClosed.
func (c *EventChannel) Wait(ctx context.Context) (Event, error) {
	const eqe = 64
	if c == nil {
		return Event{}, invalid("wait for DEVX event", "the channel is nil")
	}
	cookie, data, err := c.read(ctx, "wait for DEVX event", eqe)
	if len(data) == 0 {
		data = nil
	}
	return Event{cookie, data}, err
}

// Close closes the channel and ends its subscriptions (mlx5dv_devx_destroy_event_channel).
// Waits on it end with verbs.ErrClosed.
func (c *EventChannel) Close() error {
	if c == nil {
		return nil
	}
	return c.close()
}

// A CommandChannel executes commands asynchronously (struct mlx5dv_devx_cmd_comp). Its
// methods are safe for concurrent use.
type CommandChannel struct{ *channel }

// NewCommandChannel makes a channel for commands (mlx5dv_devx_create_cmd_comp).
func NewCommandChannel(dev *verbs.Device) (*CommandChannel, error) {
	call, err := beginDEVX("create DEVX command channel", dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxAsyncCmdFdAlloc()
	defer cmd.Release()
	fd := cmd.Handle()
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	return &CommandChannel{adopt(call, "DEVX commands", "destroy DEVX command channel", int(int64(*fd)))}, nil
}

// Query is like the function Query, but does not wait for the answer, which has up to n bytes
// (mlx5dv_devx_obj_query_async). Wait returns the answer, with the ID.
func (c *CommandChannel) Query(o *Object, id uint64, in []byte, n int) error {
	const op = "query DEVX object"
	switch {
	case c == nil || o == nil:
		return invalid(op, "the channel or the object is nil")
	case len(in) < header || len(in) > 0xffff || n < header || n > maxAnswer:
		return invalid(op, "a command of %d bytes with an answer of %d", len(in), n)
	}
	call, err := beginDEVX(op, o.object, c.object)
	if err != nil {
		return err
	}
	defer call.Done()
	raw, err := c.file.SyscallConn()
	if err != nil {
		return call.Fail("", err)
	}
	cmd := ioctl.NewMlx5DevxObjAsyncQuery()
	defer cmd.Release()
	cmd.Handle(call.Handles[0])
	cmd.CmdIn(in)
	cmd.OutLen(uint16(n))
	cmd.WrId(id)
	if err := withFD(raw, func(fd int) error {
		cmd.Fd(fd)
		return cmd.Run(call.File)
	}); err != nil {
		return call.Fail("", err)
	}
	return nil
}

// maxAnswer bounds answers to asynchronous commands, as the kernel does.
const maxAnswer = 16 << 10

// Wait waits for an answer, and returns it with the ID of its command
// (mlx5dv_devx_get_async_cmd_comp). If the firmware has refused the command, the error wraps
// a *CommandError. If ctx ends first, no answer is lost.
func (c *CommandChannel) Wait(ctx context.Context) (id uint64, out []byte, err error) {
	const op = "wait for DEVX command"
	if c == nil {
		return 0, nil, invalid(op, "the channel is nil")
	}
	id, out, err = c.read(ctx, op, maxAnswer)
	if err == nil && len(out) >= 8 && out[0] != 0 {
		err = &verbs.OpError{Op: op, Err: &CommandError{Status: out[0], Syndrome: binary.BigEndian.Uint32(out[4:]), Err: syscall.EIO}}
	}
	return id, out, err
}

// Close closes the channel (mlx5dv_devx_destroy_cmd_comp). Waits on it end with
// verbs.ErrClosed.
func (c *CommandChannel) Close() error {
	if c == nil {
		return nil
	}
	return c.close()
}
