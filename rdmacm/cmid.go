package rdmacm

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A cmID is the part that an ID and a SyncID have in common: the kernel's ID (struct rdma_cm_id) and the
// objects made on it.
type cmID struct {
	ps     PortSpace
	qpType verbs.QPType
	number uint64 // in the registry
	asked  bool   // the ID came with a connection request

	answered atomic.Bool // the request was accepted or rejected

	objects sync.Mutex   // held while the ID's QP or SRQ is made or closed, and while the ID is closed
	closing atomic.Bool  // Close is under way, or done
	life    sync.RWMutex // commands and event handling hold it for reading; holding it for writing excludes them
	handle  uint32
	closed  bool

	// mu is never held during a command: event delivery needs it.
	mu       sync.Mutex
	ch       *EventChannel // written under both life and mu
	inbox    *inbox        // of a SyncID, else nil; written under both life and mu
	user     *ID           // for events; nil if it has always been a SyncID
	bound    binding
	queues   queues
	srq      *verbs.SRQ // made by CreateSRQ
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

const opCreateID = "create ID"

// createID creates an ID on a channel. The caller holds the channel for it.
func createID(ch *EventChannel, ps PortSpace, box *inbox) (*cmID, error) {
	id := &cmID{ps: ps, qpType: ps.qpType(), ch: ch, inbox: box}
	if box == nil {
		id.user = &ID{cmID: id}
	}
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

// requested makes the ID for a connection request to the listener. If this side lacks a resource for it,
// requested rejects the request and returns a closed ID. If the listener is closed, it returns nil.
func (listener *cmID) requested(ch *EventChannel, handle uint32, wish *ConnParam) (*cmID, error) {
	if !listener.beginEvent() {
		ch.destroy(handle)
		return nil, ErrClosed
	}
	defer listener.end()
	if err := ch.hold(); err != nil {
		ch.destroy(handle)
		return nil, err
	}
	id := &cmID{ps: listener.ps, qpType: listener.qpType, ch: ch, handle: handle, own: *wish, asked: true}
	if listener.inbox != nil {
		id.inbox = newInbox()
	} else {
		id.user = &ID{Value: listener.owner().Value, cmID: id}
	}
	id.number = registry.add(id)
	if err := id.addrResolved(); err != nil {
		return id, join(err, id.close())
	}
	return id, nil
}

// owner returns the ID that events report as Event.ID.
func (id *cmID) owner() *ID {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.user
}

// makeOwner makes the owner, if there is none.
func (id *cmID) makeOwner() {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.user == nil {
		id.user = &ID{cmID: id}
	}
}

// PortSpace returns the ID's port space.
func (id *cmID) PortSpace() PortSpace { return id.ps }

// QPType returns the type of QP that the port space uses.
func (id *cmID) QPType() verbs.QPType { return id.qpType }

// Device returns the opened device that the ID is bound to. It is nil before the
// address is resolved or bound. IDs on one device share the Device, and keep it
// open.
func (id *cmID) Device() *verbs.Device {
	if d := id.device(); d != nil {
		return d.ctx
	}
	return nil
}

// PD returns the protection domain that CreateQP uses by default. The IDs on one device share
// it. Objects made on it must be closed before the ID.
func (id *cmID) PD() *verbs.PD {
	if d := id.device(); d != nil {
		return d.pd
	}
	return nil
}

func (id *cmID) device() *device {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.dev
}

// Port returns the device's port, counted from 1. It is 0 before the address is
// resolved.
func (id *cmID) Port() int {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.port
}

// LocalAddr returns the local address (rdma_get_local_addr, rdma_get_src_port).
// It is invalid until the ID has one.
func (id *cmID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.src
}

// RemoteAddr returns the peer's address (rdma_get_peer_addr,
// rdma_get_dst_port). It is invalid until the ID has one.
func (id *cmID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.bound.dst
}

// begin keeps the ID open for one command, until end.
func (id *cmID) begin(op string) error {
	if !id.beginEvent() {
		return opErr(op, "", ErrClosed)
	}
	if id.unusable.Load() {
		id.life.RUnlock()
		return opErr(op, "", ErrDeviceRemoved)
	}
	return nil
}

func (id *cmID) end() { id.life.RUnlock() }

// beginEvent is like begin, for event handling. It returns false if the ID is closed or being
// closed. It doesn't wait for Close.
func (id *cmID) beginEvent() bool {
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

func (id *cmID) close() error {
	const op = "destroy ID"
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
				err = errors.Join(err, e.of.close())
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
func (id *cmID) deviceRemoved() {
	id.unusable.Store(true)
	if d := id.device(); d != nil {
		d.removed()
	}
}
