package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An ID is one end of a connection, a listener, or a datagram endpoint: what a
// socket is for TCP and UDP (struct rdma_cm_id). Its methods are safe for
// concurrent use.
//
// An ID is on an EventChannel, or on none (see CreateID). The methods that take
// a context start an operation in the kernel. If the ID is on a channel, they
// return once the kernel has accepted it, and an event on the channel reports
// the outcome. If the ID is on no channel, they wait for that event and return
// when the operation is done. After the context has ended such a wait, the ID
// can only be closed.
type ID struct {
	// Value is the caller's. The ID of a connection request inherits it from
	// the listener.
	Value any

	ps     PortSpace
	qpType verbs.QPType
	number uint64 // in the registry
	asked  bool   // it came with a connection request

	answered atomic.Bool // the request was accepted or rejected

	objects sync.Mutex   // held while the ID's QP or SRQ is made or closed, and while the ID is closed
	closing atomic.Bool  // Close is under way, or done
	life    sync.RWMutex // commands and event handling hold it for reading; holding it for writing excludes them
	handle  uint32
	closed  bool

	// mu is never held during a command: event delivery needs it.
	mu       sync.Mutex
	ch       *EventChannel // written under both life and mu
	inbox    *inbox        // of an ID on no channel, else nil; written under both life and mu
	bound    binding
	queues   queues
	srq      *verbs.SRQ // that CreateSRQ made
	own      ConnParam  // the resources requested
	ece      struct{ local, remote ECE }
	groups   []*Multicast
	backlog  int
	watch    func(*Event) // called with each event before anyone else sees it
	unusable atomic.Bool  // the device was removed
}

// A binding is the result of address resolution, or of binding to an address.
type binding struct {
	dev      *device
	port     int
	src, dst netip.AddrPort
	to       sockaddr // the address given to ResolveAddr
}

// CreateID creates an ID whose events arrive on the channel (rdma_create_id).
func (ch *EventChannel) CreateID(ps PortSpace) (*ID, error) {
	if ch == nil {
		return nil, invalid(opCreateID, "the channel is nil")
	}
	if err := ch.hold(); err != nil {
		return nil, opErr(opCreateID, "", err)
	}
	id, err := createID(ch, ps, nil)
	if err != nil {
		ch.drop()
	}
	return id, err
}

// CreateID creates an ID on no channel, whose methods wait for their own
// events (rdma_create_id without a channel). All such IDs share one file
// descriptor and one goroutine.
func CreateID(ps PortSpace) (*ID, error) {
	ch, err := shared.acquire()
	if err != nil {
		return nil, err
	}
	id, err := createID(ch, ps, newInbox())
	if err != nil {
		ch.drop()
		shared.release(ch)
	}
	return id, err
}

const opCreateID = "create ID"

func createID(ch *EventChannel, ps PortSpace, box *inbox) (*ID, error) {
	id := &ID{ps: ps, qpType: ps.qpType(), ch: ch, inbox: box}
	id.number = registry.add(id)
	f := newFrame()
	defer f.release()
	resp, address := out[uapi.RdmaUcmCreateIdResp](f, 0)
	*in[uapi.RdmaUcmCreateId](f) = uapi.RdmaUcmCreateId{
		Uid: id.number, Response: address, Ps: uint16(ps), QpType: uint8(id.qpType),
	}
	if err := ch.run(uapi.RDMA_USER_CM_CMD_CREATE_ID, f); err != nil {
		registry.remove(id.number)
		return nil, opErr(opCreateID, "("+ps.String()+")", err)
	}
	id.handle = resp.Id
	id.endWaits(ch) // the channel may have failed before the ID was in the registry
	return id, nil
}

// requested makes the ID for a connection request to the listener.
func (listener *ID) requested(ch *EventChannel, handle uint32, wish *ConnParam) (*ID, error) {
	if !listener.work() {
		ch.destroy(handle)
		return nil, ErrClosed
	}
	defer listener.end()
	if err := ch.hold(); err != nil {
		ch.destroy(handle)
		return nil, err
	}
	id := &ID{
		Value: listener.Value, ps: listener.ps, qpType: listener.qpType,
		ch: ch, handle: handle, own: *wish, asked: true,
	}
	if listener.inbox != nil {
		id.inbox = newInbox()
	}
	id.number = registry.add(id)
	if err := id.addrResolved(); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// PortSpace returns the ID's port space.
func (id *ID) PortSpace() PortSpace { return id.ps }

// QPType returns the type of QP that the port space uses.
func (id *ID) QPType() verbs.QPType { return id.qpType }

// Device returns the opened device that the ID is bound to. It is nil before the
// address is resolved or bound. IDs on one device share the Device, and keep it
// open.
func (id *ID) Device() *verbs.Device {
	if d := id.device(); d != nil {
		return d.ctx
	}
	return nil
}

// PD returns the protection domain that CreateQP uses by default. It is shared
// as the Device is. Objects made on it must be closed before the ID.
func (id *ID) PD() *verbs.PD {
	if d := id.device(); d != nil {
		return d.pd
	}
	return nil
}

func (id *ID) device() *device {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.dev
}

// Port returns the device's port, counted from 1. It is 0 before the address is
// resolved.
func (id *ID) Port() int {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.port
}

// LocalAddr returns the local address (rdma_get_local_addr, rdma_get_src_port).
// It is invalid until the ID has one.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.src
}

// RemoteAddr returns the peer's address (rdma_get_peer_addr,
// rdma_get_dst_port). It is invalid until the ID has one.
func (id *ID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.dst
}

// begin keeps the ID open for one command, until end.
func (id *ID) begin(op string) error {
	if id == nil {
		return invalid(op, "the ID is nil")
	}
	if !id.work() {
		return opErr(op, "", ErrClosed)
	}
	switch {
	case id.unusable.Load():
		id.life.RUnlock()
		return opErr(op, "", ErrDeviceRemoved)
	}
	return nil
}

func (id *ID) end() { id.life.RUnlock() }

// work is begin for handling an event. It reports false if the ID is closed or
// being closed. It doesn't wait for Close.
func (id *ID) work() bool {
	if id.closing.Load() {
		return false
	}
	id.life.RLock()
	if id.closed {
		id.life.RUnlock()
		return false
	}
	return true
}

// Close closes the QP, CQs and SRQ that the ID made, then destroys the ID
// (rdma_destroy_id). It ends a connection, or cancels a handshake, and tells the
// peer. Waits on the ID end with ErrClosed. If one of the caller's own objects
// prevents it, Close returns ErrBusy and may be called again. Closing a closed
// ID does nothing.
func (id *ID) Close() error {
	const op = "destroy ID"
	if id == nil {
		return nil
	}
	id.objects.Lock()
	defer id.objects.Unlock()
	if id.closed {
		return nil
	}
	id.closing.Store(true)
	err := id.closeQueues()
	if err == nil {
		err = id.closeSRQ()
	}
	if err != nil {
		id.closing.Store(false)
		return opErr(op, "", err)
	}
	id.life.Lock()
	id.closed = true
	id.life.Unlock() // from here on no command and no event handling uses the ID
	registry.remove(id.number)
	for _, mc := range id.groups {
		registry.remove(mc.number)
	}
	err = id.ch.destroy(id.handle)
	id.ch.drop()
	if id.inbox != nil {
		for _, e := range id.inbox.end(ErrClosed) {
			if e.Type == EventConnectRequest {
				err = errors.Join(err, e.ID.Close())
			}
		}
		shared.release(id.ch)
	}
	if d := id.bound.dev; d != nil {
		err = errors.Join(err, d.release())
	}
	if err != nil {
		return opErr(op, "", err)
	}
	return nil
}

// destroy releases an ID in the kernel.
func (ch *EventChannel) destroy(handle uint32) error {
	f := newFrame()
	defer f.release()
	_, address := out[uapi.RdmaUcmDestroyIdResp](f, 0)
	*in[uapi.RdmaUcmDestroyId](f) = uapi.RdmaUcmDestroyId{Response: address, Id: handle}
	return ch.run(uapi.RDMA_USER_CM_CMD_DESTROY_ID, f)
}

// deviceRemoved records that the device is gone: the kernel has detached the ID
// from it.
func (id *ID) deviceRemoved() {
	id.unusable.Store(true)
	if d := id.device(); d != nil {
		d.removed()
	}
}

// Migrate moves the ID and its events to another channel, or to none if to is
// nil (rdma_migrate_id). If the ID is on no channel and has events that nobody
// has taken, Migrate returns ErrBusy and the ID stays.
func (id *ID) Migrate(to *EventChannel) error {
	const op = "migrate ID"
	if err := id.begin(op); err != nil {
		return err
	}
	id.end()
	var box *inbox
	var err error
	if to == nil {
		box = newInbox()
		to, err = shared.acquire()
	} else {
		err = to.hold()
	}
	if err != nil {
		return opErr(op, "", err)
	}
	left, leftBox, err := id.migrate(op, to, box)
	if err != nil {
		left, leftBox = to, box
	}
	left.drop()
	if leftBox != nil {
		leftBox.end(errOnChannel)
		shared.release(left)
	}
	if err != nil {
		return opErr(op, "", err)
	}
	return nil
}

// migrate returns the channel and the inbox that the ID was moved from.
func (id *ID) migrate(op string, to *EventChannel, box *inbox) (from *EventChannel, old *inbox, err error) {
	if err := id.begin(op); err != nil {
		return nil, nil, ErrClosed
	}
	from = id.ch
	id.end()
	// If a channel is the shared one: wait until an event taken from the kernel is
	// in its inbox, and let none be taken before the ID has its new inbox.
	from.handing.Lock()
	defer from.handing.Unlock()
	if box != nil && to != from {
		to.handing.Lock()
		defer to.handing.Unlock()
	}
	id.life.Lock()
	defer id.life.Unlock()
	switch {
	case id.closed || id.closing.Load():
		return nil, nil, ErrClosed
	case from == to, from != id.ch: // the second: a concurrent Migrate has moved it
		return nil, nil, ErrBusy
	case id.inbox != nil && id.inbox.len() > 0:
		return nil, nil, ErrBusy
	}
	f := newFrame()
	defer f.release()
	_, address := out[uapi.RdmaUcmMigrateResp](f, 0)
	var failed error
	err = from.raw.Control(func(fd uintptr) {
		*in[uapi.RdmaUcmMigrateId](f) = uapi.RdmaUcmMigrateId{Response: address, Id: id.handle, Fd: uint32(fd)}
		failed = to.run(uapi.RDMA_USER_CM_CMD_MIGRATE_ID, f)
	})
	if err != nil {
		return nil, nil, ErrClosed
	}
	if failed != nil {
		return nil, nil, failed
	}
	id.mu.Lock()
	old = id.inbox
	id.ch, id.inbox = to, box
	id.mu.Unlock()
	id.endWaits(to)
	return from, old, nil
}

var errOnChannel = operr.Invalid("the ID's events arrive on its channel")

// Event waits for the next event of an ID on no channel. It is for the events
// that no method waits for, such as EventDisconnected and EventDeviceRemoval.
func (id *ID) Event(ctx context.Context) (*Event, error) {
	const op = "get event"
	if err := id.begin(op); err != nil {
		return nil, err
	}
	box := id.inbox
	id.end()
	if box == nil {
		return nil, opErr(op, "", errOnChannel)
	}
	e, err := box.next(ctx)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	return e, nil
}
