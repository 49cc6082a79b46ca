package rdmacm

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An EventType is the type of an event (enum rdma_cm_event_type).
type EventType uint32

const (
	EventAddrResolved    EventType = EventType(uapi.RDMA_CM_EVENT_ADDR_RESOLVED)    // ResolveAddr has found the device
	EventAddrError       EventType = EventType(uapi.RDMA_CM_EVENT_ADDR_ERROR)       // ResolveAddr has failed
	EventRouteResolved   EventType = EventType(uapi.RDMA_CM_EVENT_ROUTE_RESOLVED)   // ResolveRoute has found the path
	EventRouteError      EventType = EventType(uapi.RDMA_CM_EVENT_ROUTE_ERROR)      // ResolveRoute has failed
	EventConnectRequest  EventType = EventType(uapi.RDMA_CM_EVENT_CONNECT_REQUEST)  // Event.ID is new: Accept or Reject, and Close it
	EventConnectResponse EventType = EventType(uapi.RDMA_CM_EVENT_CONNECT_RESPONSE) // accepted, and the QP is the caller's: see ID.Establish
	EventConnectError    EventType = EventType(uapi.RDMA_CM_EVENT_CONNECT_ERROR)    // a handshake has failed; on a listening ID, because this side lacks a resource for a client
	EventUnreachable     EventType = EventType(uapi.RDMA_CM_EVENT_UNREACHABLE)      // the peer did not answer, or its link-layer address has changed
	EventRejected        EventType = EventType(uapi.RDMA_CM_EVENT_REJECTED)         // the peer has rejected the connection
	EventEstablished     EventType = EventType(uapi.RDMA_CM_EVENT_ESTABLISHED)      // the connection is established
	EventDisconnected    EventType = EventType(uapi.RDMA_CM_EVENT_DISCONNECTED)     // the connection has ended
	EventDeviceRemoval   EventType = EventType(uapi.RDMA_CM_EVENT_DEVICE_REMOVAL)   // the ID can only be closed, and must be
	EventMulticastJoin   EventType = EventType(uapi.RDMA_CM_EVENT_MULTICAST_JOIN)   // JoinMulticast has joined the group
	EventMulticastError  EventType = EventType(uapi.RDMA_CM_EVENT_MULTICAST_ERROR)  // JoinMulticast has failed, or membership was lost
	EventAddrChange      EventType = EventType(uapi.RDMA_CM_EVENT_ADDR_CHANGE)      // the network moved the address to another device
	EventTimewaitExit    EventType = EventType(uapi.RDMA_CM_EVENT_TIMEWAIT_EXIT)    // the QP's number may be used again
	EventUser            EventType = EventType(uapi.RDMA_CM_EVENT_USER)             // from WriteEvent
)

func (t EventType) String() string { return uapi.EnumRdmaCmEventType.Format(uint64(t)) }

// An Event is something that happened to an ID (struct rdma_cm_event).
type Event struct {
	Type   EventType // what has happened
	ID     *ID       // the ID that the event is for; for EventConnectRequest, the new ID; nil for a SyncID's event
	Listen *ID       // the listening ID of EventConnectRequest; nil for a SyncID's event
	SyncID *SyncID   // the new ID of EventConnectRequest to a SyncID, else nil
	Status int       // as the kernel reports it; see Err

	Conn      ConnParam  // in the TCP and IB port spaces: the peer's parameters
	UD        UDParam    // in the datagram port spaces: the address for datagrams
	Multicast *Multicast // for EventMulticastJoin and EventMulticastError
	Arg       uint64     // for EventUser: the argument of WriteEvent

	of     *cmID          // the cmID of ID
	listen *cmID          // the cmID of Listen
	client netip.AddrPort // of a request that has failed on this side
	err    error          // why handling the event failed in this package
}

// Err returns nil, or the failure that the event reports. That is an *EventError
// which matches ErrRejected, ErrUnreachable, ErrAddrResolution or another error of
// this package.
func (e *Event) Err() error {
	if e.err != nil {
		return e.err
	}
	err := &EventError{Type: e.Type, Status: e.Status}
	switch e.Type {
	case EventAddrError:
		err.err = ErrAddrResolution
		switch err.errno() {
		case syscall.ENODEV:
			err.hint = hintNoDevice
		case syscall.ETIMEDOUT:
			err.hint = "no neighbour has answered: is the address right, and its interface up?"
		}
	case EventRouteError:
		err.err = ErrRouteResolution
		switch err.errno() {
		case syscall.ENODEV:
			err.hint = hintNoDevice
		case syscall.EINVAL, syscall.ETIMEDOUT:
			err.hint = "the subnet's administration gives no path: is it an address of an IPoIB interface, and does a subnet manager run?"
		}
	case EventConnectError:
		err.err = ErrConnect
	case EventUnreachable:
		err.err = ErrUnreachable
	case EventRejected:
		err.err = ErrRejected
		err.PrivateData = e.Conn.PrivateData
	case EventDeviceRemoval:
		err.err = ErrDeviceRemoved
	case EventMulticastError:
		err.err = ErrMulticast
	default:
		return nil
	}
	return err
}

// PrivateData returns the peer's private data.
func (e *Event) PrivateData() []byte {
	if e.of != nil && e.of.qpType == verbs.UD {
		return e.UD.PrivateData
	}
	return e.Conn.PrivateData
}

// fail makes the event report that handling it has failed.
func (e *Event) fail(t EventType, what, err error) {
	e.Type = t
	e.err = &workError{what, err}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Status = -int(errno)
	}
}

// A workError matches both what failed and why.
type workError struct{ what, why error }

func (e *workError) Error() string   { return e.what.Error() + ": " + e.why.Error() }
func (e *workError) Unwrap() []error { return []error{e.what, e.why} }

// decode turns the kernel's report into an Event and handles it. It returns nil if
// no ID is left to deliver it to.
func (ch *EventChannel) decode(r *uapi.RdmaUcmEventResp) *Event {
	e := &Event{Type: EventType(r.Event), Status: int(int32(r.Status))}
	switch to := registry.find(r.Uid).(type) {
	case *cmID:
		e.of = to
	case *Multicast:
		e.of, e.Multicast = to.id, to
	}
	if e.of == nil || e.Multicast == nil && (e.Type == EventMulticastJoin || e.Type == EventMulticastError) {
		if e.Type == EventConnectRequest {
			ch.destroy(r.Id)
		}
		return nil
	}
	e.ID = e.of.owner()
	if e.Type == EventUser {
		arg := r.Param.Arg32()
		e.Arg = binary.NativeEndian.Uint64(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, arg[0]), arg[1]))
		return e
	}
	if e.of.qpType == verbs.UD {
		e.UD = udParam(r.Param.Ud())
	} else {
		e.Conn = connParam(r.Param.Conn())
	}
	switch e.Type {
	case EventAddrResolved:
		if err := e.of.addrResolved(); err != nil {
			e.fail(EventAddrError, ErrAddrResolution, err)
		}
	case EventConnectRequest:
		id, err := e.of.requested(ch, r.Id, &e.Conn)
		if id == nil {
			return nil
		}
		if err != nil {
			e.client = id.RemoteAddr()
			e.fail(EventConnectError, ErrConnect, err)
			break
		}
		e.listen, e.Listen = e.of, e.ID
		e.of, e.ID = id, id.owner()
		id.noteECE(r.Ece)
	case EventConnectResponse:
		e.of.noteECE(r.Ece)
		if e.of.QP() == nil {
			break
		}
		if err := e.of.establish(); err != nil {
			e.fail(EventConnectError, ErrConnect, err)
		} else {
			e.Type = EventEstablished
		}
	case EventEstablished:
		e.of.established()
	case EventRejected:
		e.notifyWatch(e.of) // before its work requests are flushed
		e.of.rejected()
	case EventMulticastJoin:
		if err := e.Multicast.joined(&e.UD.AH); err != nil {
			e.fail(EventMulticastError, ErrMulticast, err)
		}
	case EventDeviceRemoval:
		e.of.deviceRemoved()
	}
	return e
}
