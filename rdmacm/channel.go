package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// node is the kernel's connection manager.
const node = "/dev/infiniband/rdma_cm"

// An EventChannel delivers the kernel's events for the IDs on it (struct
// rdma_event_channel). Its file descriptor is in the runtime's poller, so waiting
// blocks no thread. Its methods are safe for concurrent use.
type EventChannel struct {
	file  *os.File
	raw   syscall.RawConn
	token chan struct{} // one goroutine reads at a time
	ids   atomic.Int32  // the number of IDs on the channel; negative when the channel is closed

	// write passes a command to the kernel, or to a test's fake kernel.
	write func(fd uintptr, command []byte) error

	// handing and lost belong to the channel that all SyncIDs share. handing is
	// held while an event moves from the kernel to its ID's inbox. lost is the
	// reason why the channel delivers no more events.
	handing sync.Mutex
	lost    atomic.Pointer[error]
}

// NewEventChannel opens a channel (rdma_create_event_channel).
func NewEventChannel() (*EventChannel, error) {
	return openChannel(node)
}

const opCreateChannel = "create event channel"

// nodeError returns the error for a node that can't be opened, with a hint. none, unless nil, says that
// there is no device.
func nodeError(node string, err, none error) *OpError {
	e := &OpError{Op: opCreateChannel, Object: "(" + node + ")", Err: err}
	switch {
	case errors.Is(err, os.ErrNotExist) && none != nil:
		e.Err, e.hint = fmt.Errorf("%w (%w)", verbs.ErrNoDevice, err), ib.Hint(none)
	case errors.Is(err, os.ErrNotExist):
		e.hint = "load the kernel module rdma_ucm; a container needs the node passed in (--device " + node + ")"
	case errors.Is(err, os.ErrPermission):
		e.hint = "the user needs read and write permission on the node, and a container needs it allowed in its device cgroup"
	}
	return e
}

// noDevice returns an error if there is no RDMA device.
func noDevice() error {
	if devs, err := verbs.Devices(); err != nil || len(devs) > 0 {
		return nil
	}
	_, err := verbs.Open("")
	return err
}

func openChannel(node string) (*EventChannel, error) {
	if runtime.GOOS != "linux" {
		return nil, &OpError{Op: opCreateChannel, Err: ErrNotSupported, hint: "there is no RDMA connection manager on " + runtime.GOOS}
	}
	open, write := openNode, write
	if k := kernel.Current(); k != nil {
		open, write = k.OpenCM, k.WriteCM
	}
	file, err := open(node)
	if err != nil {
		return nil, nodeError(node, err, noDevice())
	}
	ch, err := newChannel(file)
	if err != nil {
		return nil, opErr(opCreateChannel, "", errors.Join(err, file.Close()))
	}
	ch.write = write
	return ch, nil
}

func newChannel(file *os.File) (*EventChannel, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	ch := &EventChannel{file: file, raw: raw, write: write, token: make(chan struct{}, 1)}
	ch.token <- struct{}{}
	return ch, nil
}

// SyscallConn gives access to the file descriptor, which is readable when Event
// would not block. The caller must neither close it nor make it blocking.
func (ch *EventChannel) SyscallConn() (syscall.RawConn, error) { return ch.file.SyscallConn() }

// Event waits for the next event (rdma_get_cm_event). The event belongs to the
// caller: it needs no acknowledgement, and its ID may be closed while the caller
// holds it.
//
// As librdmacm does, Event acts on some events before it returns them. When an
// address is resolved, it opens the device. For a connection request, it makes a
// new ID. When the peer accepts, it brings a QP made with ID.CreateQP to RTS. When
// a multicast group is joined, it attaches that QP to the group.
//
// Close ends the wait with ErrClosed.
func (ch *EventChannel) Event(ctx context.Context) (*Event, error) {
	const op = "get event"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	for {
		resp, err := ch.take(ctx, noLock{})
		if err != nil {
			return nil, opErr(op, "", err)
		}
		// Nil: the ID was closed after the event was read.
		if e := ch.decode(resp); e != nil {
			return e, nil
		}
	}
}

var errNoContext = operr.Invalid("the context.Context is nil")

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// take waits for the token, and takes one event from the kernel. If it returns an event, it has locked
// taken before the kernel released the event.
func (ch *EventChannel) take(ctx context.Context, taken sync.Locker) (*uapi.RdmaUcmEventResp, error) {
	select {
	case <-ch.token:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { ch.token <- struct{}{} }()
	f := newFrame()
	defer f.release()
	resp, address := out[uapi.RdmaUcmEventResp](f, 0)
	in[uapi.RdmaUcmGetEvent](f).Response = address
	f.hdr.Cmd = uapi.RDMA_USER_CM_CMD_GET_EVENT
	var failed error
	err := fdwait.Wait(ctx, ch.file, func() error {
		return ch.raw.Read(func(fd uintptr) (done bool) {
			taken.Lock()
			if failed = ch.write(fd, f.bytes()); failed != nil {
				taken.Unlock()
			}
			return failed != syscall.EAGAIN
		})
	})
	switch {
	case err == nil && failed == nil:
		event := *resp
		return &event, nil
	case err == nil:
		return nil, failed
	case ctx.Err() != nil && err == ctx.Err():
		return nil, err
	}
	return nil, ErrClosed
}

// run runs a command.
func (ch *EventChannel) run(number uint32, f *frame) error {
	f.hdr.Cmd = number
	var failed error
	if err := ch.raw.Control(func(fd uintptr) { failed = ch.write(fd, f.bytes()) }); err != nil {
		return ErrClosed
	}
	return failed
}

// hold keeps the channel open for an ID, until drop.
func (ch *EventChannel) hold() error {
	for {
		n := ch.ids.Load()
		if n < 0 {
			return ErrClosed
		}
		if ch.ids.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (ch *EventChannel) drop() { ch.ids.Add(-1) }

const closedIDs = -1 << 30

// Close closes the channel (rdma_destroy_event_channel) and ends waits on it. It
// returns ErrBusy while there are IDs on the channel. Closing a closed channel,
// or a nil one, does nothing.
func (ch *EventChannel) Close() error {
	const op = "destroy event channel"
	if ch == nil {
		return nil
	}
	if !ch.ids.CompareAndSwap(0, closedIDs) {
		if ch.ids.Load() < 0 {
			return nil
		}
		return opErr(op, "", ErrBusy)
	}
	if err := ch.file.Close(); err != nil {
		return opErr(op, "", err)
	}
	return nil
}
