package verbs

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/uapi"
)

// An EventType says what an asynchronous event is about (enum ib_event_type).
type EventType uint32

const (
	EventCQErr            = EventType(uapi.IB_EVENT_CQ_ERR)
	EventQPFatal          = EventType(uapi.IB_EVENT_QP_FATAL)
	EventQPReqErr         = EventType(uapi.IB_EVENT_QP_REQ_ERR)
	EventQPAccessErr      = EventType(uapi.IB_EVENT_QP_ACCESS_ERR)
	EventCommEst          = EventType(uapi.IB_EVENT_COMM_EST)
	EventSQDrained        = EventType(uapi.IB_EVENT_SQ_DRAINED)
	EventPathMig          = EventType(uapi.IB_EVENT_PATH_MIG)
	EventPathMigErr       = EventType(uapi.IB_EVENT_PATH_MIG_ERR)
	EventDeviceFatal      = EventType(uapi.IB_EVENT_DEVICE_FATAL)
	EventPortActive       = EventType(uapi.IB_EVENT_PORT_ACTIVE)
	EventPortErr          = EventType(uapi.IB_EVENT_PORT_ERR)
	EventLIDChange        = EventType(uapi.IB_EVENT_LID_CHANGE)
	EventPKeyChange       = EventType(uapi.IB_EVENT_PKEY_CHANGE)
	EventSMChange         = EventType(uapi.IB_EVENT_SM_CHANGE)
	EventSRQErr           = EventType(uapi.IB_EVENT_SRQ_ERR)
	EventSRQLimitReached  = EventType(uapi.IB_EVENT_SRQ_LIMIT_REACHED)
	EventQPLastWQEReached = EventType(uapi.IB_EVENT_QP_LAST_WQE_REACHED)
	EventClientReregister = EventType(uapi.IB_EVENT_CLIENT_REREGISTER)
	EventGIDChange        = EventType(uapi.IB_EVENT_GID_CHANGE)
	EventWQFatal          = EventType(uapi.IB_EVENT_WQ_FATAL)
)

func (t EventType) String() string { return uapi.EnumIbEventType.Short(uint64(t)) }

// An AsyncEvent is an event that no verb asked for. At most one of QP, CQ, SRQ
// and Port is set: what the event is about. An object that was closed in the
// meantime is nil.
type AsyncEvent struct {
	Type EventType
	Port int
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
}

// AsyncEvent waits for the next asynchronous event (ibv_get_async_event; there
// is nothing to acknowledge). If the device is removed there is one
// EventDeviceFatal, and then ErrDeviceRemoved.
func (c *Context) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	const op = "get async event"
	if ctx == nil {
		return AsyncEvent{}, &OpError{Op: op, Err: errNoContext}
	}
	if err := c.begin(op); err != nil {
		return c.noEvent(op, err)
	}
	async := c.async
	c.done() // waiting must not keep Close out

	var b [asyncEventLen]byte
	if err := async.read(ctx, b[:]); err != nil {
		return c.noEvent(op, err)
	}
	element := binary.NativeEndian.Uint64(b[0:])
	e := AsyncEvent{Type: EventType(binary.NativeEndian.Uint32(b[8:]))}
	switch e.Type {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig, EventPathMigErr, EventQPLastWQEReached:
		e.QP, _ = c.member(element).(*QP)
	case EventCQErr:
		if e.CQ, _ = c.member(element).(*CQ); e.CQ != nil {
			e.CQ.overran.Store(true)
			e.CQ.silent.Store(true)
		}
	case EventSRQErr, EventSRQLimitReached:
		e.SRQ, _ = c.member(element).(*SRQ)
	case EventDeviceFatal:
		c.removal.reported.Store(true)
	default:
		e.Port = int(element)
	}
	return e, nil
}

// noEvent reports the removal of the device as an event, once, whether or not
// its driver did.
func (c *Context) noEvent(op string, err error) (AsyncEvent, error) {
	if (errors.Is(err, ErrDeviceRemoved) || isRemoved(err)) && c.removal.reported.CompareAndSwap(false, true) {
		return AsyncEvent{Type: EventDeviceFatal}, nil
	}
	var e *OpError
	if errors.As(err, &e) {
		return AsyncEvent{}, err
	}
	return AsyncEvent{}, opErr(op, "", err)
}

// asyncEventLen is the size of struct ib_uverbs_async_event_desc: element,
// event_type, reserved.
const asyncEventLen = 16
