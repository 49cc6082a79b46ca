package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An ID is one end of a connection, a listener, or an end for datagrams: what a
// socket is for TCP and UDP (struct rdma_cm_id). Its methods are safe for
// concurrent use.
//
// It is made on an EventChannel, or on none (see CreateID). The methods that
// take a context, and have the kernel do something, return for an ID on a
// channel once the kernel has accepted the task; what becomes of it is an event
// on the channel. For an ID on no channel they return when it is done: these
// IDs wait for their own events. If the context ends such a wait, nothing but
// Close is of use any more.
type ID struct {
	// Context is the caller's. An ID that a connection request brings inherits
	// it from the listener.
	Context any

	ps     PortSpace
	qpType verbs.QPType
	number uint64 // in the registry
	asked  bool   // a connection request brought it

	answered atomic.Bool // the request was accepted or rejected

	objects sync.Mutex   // held by who makes or closes the ID's QP or SRQ, or closes the ID
	closing atomic.Bool  // Close is under way, or done
	life    sync.RWMutex // commands and the work of events hold it for reading, who keeps them out for writing
	handle  uint32
	closed  bool

	// mu is never held while the kernel works: who delivers events takes it.
	mu       sync.Mutex
	ch       *EventChannel // written under both life and mu
	inbox    *inbox        // of an ID on no channel, else nil; written under both life and mu
	bound    binding
	queues   queues
	srq      *verbs.SRQ // that CreateSRQ made
	own      ConnParam  // the resources that were asked for
	ece      struct{ local, remote ECE }
	groups   []*Multicast
	backlog  int
	watch    func(*Event) // is told of events, before anyone else
	unusable atomic.Bool  // the device was removed
}

// A binding is what address resolution, or binding to an address, has found.
type binding struct {
	dev      *device
	port     int
	src, dst netip.AddrPort
	to       sockaddr // whose resolution was asked for
}

// CreateID creates an ID whose events come on the channel (rdma_create_id).
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
// events (rdma_create_id without a channel). Any number of them shares one
// file descriptor and one goroutine.
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
	id.endWaits(ch) // it may have been lost before the ID was in the registry
	return id, nil
}

// requested makes the ID of a connection request that came to a listener.
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
		Context: listener.Context, ps: listener.ps, qpType: listener.qpType,
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

// PortSpace returns the space of the ID's port number.
func (id *ID) PortSpace() PortSpace { return id.ps }

// QPType returns the type of the QP that goes with the port space.
func (id *ID) QPType() verbs.QPType { return id.qpType }

// Verbs returns the device that the ID is bound to, opened: nil before its
// address is resolved or bound. IDs on one device share it; the ID keeps it
// open.
func (id *ID) Verbs() *verbs.Context {
	if d := id.device(); d != nil {
		return d.ctx
	}
	return nil
}

// PD returns the protection domain that CreateQP takes where none is given. It
// is shared as Verbs is. What is made on it must be closed before the ID is.
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

// Port returns the device's port, from 1; 0 before the address is resolved.
func (id *ID) Port() int {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.port
}

// LocalAddr returns the local address (rdma_get_local_addr, rdma_get_src_port),
// which is invalid until there is one.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.src
}

// RemoteAddr returns the peer's address (rdma_get_peer_addr,
// rdma_get_dst_port), which is invalid until there is one.
func (id *ID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.dst
}

// begin holds the ID open for one command; end ends that.
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

// work is begin for the work of an event: true, unless the ID is closed, or
// about to be. It doesn't wait for Close.
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

// Close destroys the ID (rdma_destroy_id), after the QP, CQs and SRQ that it
// made. A connection ends, and a handshake that is under way is called off:
// the peer is told. Waits on the ID end with ErrClosed. Where something of the
// caller's own is in the way, it answers ErrBusy, and may be called again.
// Closing again after it succeeded does nothing.
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
	id.life.Unlock() // from here on nobody else uses what commands and events do
	registry.remove(id.number)
	for _, mc := range id.groups {
		registry.remove(mc.number)
	}
	err = id.ch.destroy(id.handle)
	id.ch.drop()
	if id.inbox != nil {
		for _, e := range id.inbox.end(ErrClosed) {
			if e.Type == ConnectRequest {
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

// deviceRemoved notes that the device is gone: the kernel has let go of the ID.
func (id *ID) deviceRemoved() {
	id.unusable.Store(true)
	if d := id.device(); d != nil {
		d.removed()
	}
}

// Migrate moves the ID, and its events, to another channel, or with nil to none
// (rdma_migrate_id). An ID on no channel for which events have come that
// nobody has waited for stays, with ErrBusy.
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

// migrate returns the channel and the inbox that the ID has left.
func (id *ID) migrate(op string, to *EventChannel, box *inbox) (from *EventChannel, old *inbox, err error) {
	if err := id.begin(op); err != nil {
		return nil, nil, ErrClosed
	}
	from = id.ch
	id.end()
	// Of the shared channel: an event that was taken from the kernel is on its way
	// to the inbox, and none is taken before the ID has its new one.
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
	case from == to, from != id.ch: // the latter: somebody else has moved it
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

var errOnChannel = &argError{"the ID's events come on its channel"}

// Event waits for the next event of an ID on no channel, for those that no
// method waits for: the peer has disconnected, the device is removed.
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
