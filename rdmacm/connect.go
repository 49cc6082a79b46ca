package rdmacm

import (
	"cmp"
	"context"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

const (
	opConnect    = "connect"
	opAccept     = "accept"
	opReject     = "reject"
	opEstablish  = "establish"
	opDisconnect = "disconnect"
	opNotify     = "notify"
)

// Connect asks the peer for a connection, or a datagram service for its queue
// pair number (rdma_connect). A nil p stands for the zero ConnParam. On success, the event is
// EventEstablished, or EventConnectResponse if the QP is the caller's own. The event has the
// peer's private data and, for datagrams, the peer's address. On failure, the event is
// EventRejected, EventUnreachable or EventConnectError. The kernel waits for the peer for
// about a minute.
func (id *ID) Connect(p *ConnParam) error {
	return id.do(opConnect, func() error { return id.doConnect(p) })
}

// Connect is like ID.Connect, but waits for the event of success and returns it.
func (id *SyncID) Connect(ctx context.Context, p *ConnParam) (*Event, error) {
	want := EventEstablished
	if id.QP() == nil && id.qpType != verbs.UD && !id.iwarp() {
		want = EventConnectResponse
	}
	e, err := id.do(ctx, opConnect, func() error { return id.doConnect(p) }, id.toPeer, want)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// toPeer and fromPeer name the peer in errors.
func (id *cmID) toPeer() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.bound.to == nil {
		return ""
	}
	return "to " + id.bound.to.String()
}

func (id *cmID) fromPeer() string {
	addr := id.RemoteAddr()
	if !addr.IsValid() { // it has an InfiniBand address
		return ""
	}
	return "from " + addr.String()
}

func (id *cmID) doConnect(p *ConnParam) error {
	dev := id.device()
	if dev == nil {
		return invalid(opConnect, "the address is not resolved")
	}
	room := MaxConnectData
	if id.qpType == verbs.UD {
		room = MaxUDConnectData
	}
	param, err := id.param(opConnect, p, room)
	if err != nil {
		return err
	}
	param.InitiatorDepth, err = limit(opConnect, "InitiatorDepth", param.InitiatorDepth, dev.maxInitiatorDepth)
	if err != nil {
		return err
	}
	param.ResponderResources, err = limit(opConnect, "ResponderResources", param.ResponderResources, dev.maxResponderResources)
	if err != nil {
		return err
	}
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmConnect](f)
	req.Id, req.Ece = id.handle, id.localECE(false)
	param.put(&req.ConnParam)
	connect := func() error { return id.ch.run(uapi.RDMA_USER_CM_CMD_CONNECT, f) }
	if id.iwarp() {
		// During this command, the kernel connects TCP. If a signal interrupts it, the kernel runs the
		// command again, from an address that the first connection still occupies.
		err = withoutSignals(connect)
	} else {
		err = connect()
	}
	if err != nil {
		e := &OpError{Op: opConnect, Object: id.toPeer(), Err: err}
		if err == syscall.ECONNREFUSED { // over iWARP, where TCP reports it at once
			e.hint = RejectInvalidServiceID.String()
		}
		return e
	}
	return nil
}

// param validates the caller's parameters and fills in defaults.
func (id *cmID) param(op string, p *ConnParam, room int) (ConnParam, error) {
	var param ConnParam
	if p != nil {
		param = *p
	}
	if len(param.PrivateData) > room {
		return param, invalid(op, "%d bytes of private data: the maximum is %d", len(param.PrivateData), room)
	}
	var err error
	if param.RetryCount, err = limit(op, "RetryCount", cmp.Or(param.RetryCount, defaultRetries), maxRetries); err != nil {
		return param, err
	}
	if param.RNRRetryCount, err = limit(op, "RNRRetryCount", param.RNRRetryCount, maxRetries); err != nil {
		return param, err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.queues.qp != nil {
		param.QPNum, param.SRQ = id.queues.qp.Num(), id.queues.srq
	}
	if param.QPNum > 0xffffff {
		return param, invalid(op, "QP number %#x has more than 24 bits", param.QPNum)
	}
	// A request to a datagram service carries no QP number.
	if param.QPNum == 0 && !(op == opConnect && id.qpType == verbs.UD) {
		return param, invalid(op, "there is no QP: create one, or name one with QPNum")
	}
	return param, nil
}

// limit returns the number to ask for: the default if wish is 0, and 0 for None.
func limit(op, name string, wish, bound int) (int, error) {
	switch {
	case wish == 0:
		return bound, nil
	case wish > bound:
		return 0, invalid(op, "%s is %d: the maximum is %d", name, wish, bound)
	}
	return max(wish, 0), nil
}

func (p *ConnParam) put(to *uapi.RdmaUcmConnParam) {
	*to = uapi.RdmaUcmConnParam{
		QpNum: p.QPNum, Srq: bool8(p.SRQ), Valid: 1,
		ResponderResources: uint8(p.ResponderResources), InitiatorDepth: uint8(p.InitiatorDepth),
		FlowControl: bool8(p.FlowControl), RetryCount: uint8(p.RetryCount), RnrRetryCount: uint8(p.RNRRetryCount),
	}
	to.PrivateDataLen = uint8(copy(to.PrivateData[:], p.PrivateData))
}

func bool8(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// Accept accepts the connection request that the ID came with (rdma_accept). A
// QP made with CreateQP is first brought to RTS. A nil p stands for the zero ConnParam. On
// success, the event is EventEstablished. On failure, it is EventRejected, EventUnreachable
// or EventConnectError. A datagram service gets no event.
//
// The peer may send as soon as it receives the answer, so post receives first.
func (id *ID) Accept(p *ConnParam) error {
	return id.do(opAccept, func() error { return id.doAccept(p) })
}

// Accept is like ID.Accept, but waits for EventEstablished, unless it accepts datagrams. It
// also returns nil if the peer's confirmation was lost, and the peer has disconnected since.
// Event then returns EventDisconnected, and messages of the peer may still be in the queue
// pair.
func (id *SyncID) Accept(ctx context.Context, p *ConnParam) error {
	if id.qpType == verbs.UD {
		_, err := id.start(ctx, opAccept)
		if err != nil {
			return err
		}
		defer id.end()
		return id.doAccept(p)
	}
	_, err := id.do(ctx, opAccept, func() error { return id.doAccept(p) }, id.fromPeer, EventEstablished)
	return err
}

func (id *cmID) doAccept(p *ConnParam) error {
	switch {
	case !id.asked:
		return invalid(opAccept, "the ID is not that of a connection request")
	case id.answered.Load():
		return invalid(opAccept, "the request has been answered")
	}
	dev := id.device()
	if dev == nil {
		return invalid(opAccept, "the request came without a device")
	}
	room := MaxAcceptData
	if id.qpType == verbs.UD {
		room = MaxUDAcceptData
	}
	param, err := id.param(opAccept, p, room)
	if err != nil {
		return err
	}
	// The kernel has swapped the sides already: the number of reads that the peer
	// wants to have outstanding arrived as ResponderResources.
	param.InitiatorDepth, err = limit(opAccept, "InitiatorDepth", param.InitiatorDepth,
		grant(param.InitiatorDepth, id.own.InitiatorDepth, dev.maxInitiatorDepth))
	if err != nil {
		return err
	}
	param.ResponderResources, err = limit(opAccept, "ResponderResources", param.ResponderResources,
		grant(param.ResponderResources, id.own.ResponderResources, dev.maxResponderResources))
	if err != nil {
		return err
	}
	if id.qpType != verbs.UD {
		if err := id.doConnectQP(&param); err != nil {
			return opErr(opAccept, id.fromPeer(), id.stepError(err))
		}
	}
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmAccept](f)
	req.Id, req.Uid, req.Ece = id.handle, id.number, id.localECE(true)
	param.put(&req.ConnParam)
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_ACCEPT, f); err != nil {
		id.qpToError()
		return opErr(opAccept, id.fromPeer(), id.stepError(err))
	}
	id.answered.Store(true)
	id.connectedQP()
	return nil
}

// grant returns the maximum for Accept: the device's limit and, if the caller
// asks for as much as possible, no more than the peer offers.
func grant(wish, peer, device int) int {
	if wish == 0 {
		return min(peer, device)
	}
	return device
}

// Reject rejects the connection request that the ID came with (rdma_reject). The
// ID must still be closed.
func (id *cmID) Reject(privateData []byte) error {
	return id.reject(0, privateData) // RejectConsumer
}

func (id *cmID) reject(reason uint8, privateData []byte) error {
	if err := id.begin(opReject); err != nil {
		return err
	}
	defer id.end()
	if id.answered.Load() {
		return invalid(opReject, "the request has been answered")
	}
	room := MaxRejectData
	if id.qpType == verbs.UD {
		room = MaxUDAcceptData
	}
	if len(privateData) > room {
		return invalid(opReject, "%d bytes of private data: the maximum is %d", len(privateData), room)
	}
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmReject](f)
	req.Id, req.Reason = id.handle, reason
	req.PrivateDataLen = uint8(copy(req.PrivateData[:], privateData))
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_REJECT, f); err != nil {
		return opErr(opReject, "", err)
	}
	id.answered.Store(id.asked)
	return nil
}

// Establish completes a connection whose QP is the caller's own (rdma_establish).
// Call it after EventConnectResponse, when the QP is in RTS. A QP made with CreateQP
// doesn't need it.
func (id *cmID) Establish() error {
	if err := id.begin(opEstablish); err != nil {
		return err
	}
	defer id.end()
	if id.QP() != nil {
		return invalid(opEstablish, "the ID made its QP, so the connection is established without this call")
	}
	if err := id.readyToUse(); err != nil {
		return opErr(opEstablish, "", err)
	}
	return nil
}

// readyToUse tells the peer that the connection may be used.
func (id *cmID) readyToUse() error {
	f := newFrame()
	defer f.release()
	in[uapi.RdmaUcmAccept](f).Id = id.handle
	return id.ch.run(uapi.RDMA_USER_CM_CMD_ACCEPT, f)
}

// establish brings the QP to RTS after the peer has accepted, and tells the
// peer.
func (id *cmID) establish() error {
	if !id.beginEvent() {
		return ErrClosed
	}
	defer id.end()
	err := id.doConnectQP(nil)
	if err == nil {
		err = id.readyToUse()
	}
	if err != nil {
		id.qpToError()
	}
	return asDisconnect(err)
}

// established notes a connection that the kernel has completed by itself.
func (id *cmID) established() {
	if id.beginEvent() {
		id.connectedQP()
		id.end()
	}
}

// rejected makes the QP flush its work requests.
func (id *cmID) rejected() {
	if id.beginEvent() {
		id.qpToError()
		id.end()
	}
}

// asDisconnect translates the connection manager's EINVAL. For a step of the
// handshake that is due, it means that the peer has left the handshake.
func asDisconnect(err error) error {
	if err == syscall.EINVAL {
		return &workError{ErrDisconnected, err}
	}
	return err
}

// stepError is asDisconnect if the peer began the handshake. Otherwise EINVAL may
// also mean that the caller took the step out of order.
func (id *cmID) stepError(err error) error {
	if id.asked {
		return asDisconnect(err)
	}
	return err
}

// Disconnect ends the connection, or confirms that the peer has ended it
// (rdma_disconnect). The QP moves to the ERR state, where posted work requests
// complete with WCWRFlushErr. The event is EventDisconnected.
func (id *ID) Disconnect() error { return id.do(opDisconnect, id.doDisconnect) }

// Disconnect is like ID.Disconnect, but waits until the connection has ended. It leaves the
// event to Event.
func (id *SyncID) Disconnect(ctx context.Context) error {
	box, err := id.start(ctx, opDisconnect)
	if err != nil {
		return err
	}
	err = id.doDisconnect()
	id.end()
	if err != nil {
		return err
	}
	if err := box.waitOver(ctx); err != nil {
		return opErr(opDisconnect, "", err)
	}
	return nil
}

func (id *cmID) doDisconnect() error {
	dev := id.device()
	if dev == nil {
		return invalid(opDisconnect, "the ID is not connected")
	}
	if err := id.shutQP(); err != nil {
		return opErr(opDisconnect, "", err)
	}
	f := newFrame()
	defer f.release()
	in[uapi.RdmaUcmDisconnect](f).Id = id.handle
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_DISCONNECT, f); err != nil {
		return opErr(opDisconnect, "", err)
	}
	return nil
}

// WriteEvent appends an event of the caller's own to the ID's channel
// (rdma_write_cm_event): an EventUser with this status and argument. Linux 7.2
// supports it; 6.12 does not.
func (id *cmID) WriteEvent(status int32, arg uint64) error {
	const op = "write event"
	if err := id.begin(op); err != nil {
		return err
	}
	defer id.end()
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmWriteCmEvent](f)
	req.Id, req.Event, req.Status = id.handle, uint32(uapi.RDMA_CM_EVENT_USER), uint32(status)
	*req.Param.Arg() = arg
	err := id.ch.run(uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, f)
	if err == syscall.EINVAL {
		return &OpError{Op: op, Err: fmt.Errorf("%w (%w)", ErrNotSupported, err), hint: "this needs a newer kernel, and an ID other than that of an unanswered request"}
	}
	if err != nil {
		return opErr(op, "", err)
	}
	return nil
}

// Notify tells the connection manager about an asynchronous event of a QP
// (rdma_notify). EventCommEst means that data arrived before the last message of the
// handshake, EventPathMig that the QP has moved to its alternate path.
func (id *cmID) Notify(event verbs.EventType) error {
	if err := id.begin(opNotify); err != nil {
		return err
	}
	defer id.end()
	f := newFrame()
	defer f.release()
	*in[uapi.RdmaUcmNotify](f) = uapi.RdmaUcmNotify{Id: id.handle, Event: uint32(event)}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_NOTIFY, f); err != nil {
		return opErr(opNotify, fmt.Sprintf("of %v", event), err)
	}
	return nil
}
