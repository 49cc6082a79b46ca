package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/goverbs/goverbs/uapi"
)

// An EventType is the type of an asynchronous event (enum ib_event_type).
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

// An AsyncEvent is an asynchronous event. At most one of QP, CQ, SRQ and Port is set:
// the object that it is about.
type AsyncEvent struct {
	Type EventType
	Port int
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
}

// AsyncEvent waits for the next asynchronous event (ibv_get_async_event). Events need
// no acknowledgement. An event that occurs again before it was returned is reported
// once. Events of closed objects are not reported. When the device is removed,
// AsyncEvent returns one EventDeviceFatal, and then ErrDeviceRemoved.
func (c *Device) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	const op = "get async event"
	if ctx == nil {
		return AsyncEvent{}, &OpError{Op: op, Err: errNoContext}
	}
	if c == nil {
		return AsyncEvent{}, &OpError{Op: op, Err: errNil}
	}
	for {
		if c.file == nil || c.closing.Load() {
			return AsyncEvent{}, opErr(op, "context", ErrClosed)
		}
		if err := ctx.Err(); err != nil {
			return AsyncEvent{}, opErr(op, "", err)
		}
		if e, ok := c.takeEvent(); ok {
			return e, nil
		}
		if c.removal.gone.Load() {
			return AsyncEvent{}, opErr(op, c.dev.Name(), ErrDeviceRemoved)
		}
		select {
		case <-c.events.more:
		case <-c.removal.news:
		case <-c.events.ended:
			if err := c.events.err; err != nil {
				return AsyncEvent{}, opErr(op, "", err)
			}
		case <-ctx.Done():
		}
	}
}

func (c *Device) takeEvent() (e AsyncEvent, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events.take()
}

// events queues asynchronous events. A goroutine always reads them from the kernel,
// because CQs must learn that they have overrun, and all objects that the device is
// gone.
type events struct {
	list  []AsyncEvent
	fatal bool          // EventDeviceFatal has come
	more  chan struct{} // holds a token when there are events
	ended chan struct{} // closed when no more events are read
	err   error         // the reason, other than Close or removal; set before ended is closed
}

func (q *events) init() {
	q.more, q.ended = make(chan struct{}, 1), make(chan struct{})
}

// add queues an event unless it is already queued. This bounds the queue by the
// number of objects.
func (q *events) add(e AsyncEvent) {
	if slices.Contains(q.list, e) || e.Type == EventDeviceFatal && q.fatal {
		return
	}
	q.fatal = q.fatal || e.Type == EventDeviceFatal
	q.list = append(q.list, e)
	q.signal()
}

func (q *events) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *events) take() (e AsyncEvent, ok bool) {
	if len(q.list) == 0 {
		return AsyncEvent{}, false
	}
	e = q.list[0]
	if q.list = q.list[1:]; len(q.list) > 0 {
		q.signal() // for another waiter
	}
	return e, true
}

// forget drops the events of an object that is being closed, as the kernel does.
func (q *events) forget(m member) {
	q.list = slices.DeleteFunc(q.list, func(e AsyncEvent) bool {
		switch m := m.(type) {
		case *QP:
			return e.QP == m
		case *CQ:
			return e.CQ == m
		case *SRQ:
			return e.SRQ == m
		}
		return false
	})
}

// readEvents reads events until the Device is closed or the device gone.
func (c *Device) readEvents() {
	defer close(c.events.ended)
	for {
		var b [asyncEventLen]byte
		switch err := c.async.read(context.Background(), b[:]); {
		case err == nil:
			c.event(EventType(binary.NativeEndian.Uint32(b[8:])), binary.NativeEndian.Uint64(b[:]))
		case errors.Is(err, ErrDeviceRemoved):
			c.deviceGone()
			return
		case errors.Is(err, ErrClosed):
			return
		default:
			c.events.err = err
			return
		}
	}
}

// event handles an event about an element: an object's id, or a port.
func (c *Device) event(typ EventType, element uint64) {
	if typ == EventDeviceFatal {
		c.deviceGone()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := AsyncEvent{Type: typ}
	known := true
	switch typ {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig, EventPathMigErr, EventQPLastWQEReached:
		e.QP, known = c.members[element].(*QP)
	case EventCQErr:
		if e.CQ, known = c.members[element].(*CQ); known {
			e.CQ.overrun()
		}
	case EventSRQErr, EventSRQLimitReached:
		e.SRQ, known = c.members[element].(*SRQ)
	default:
		e.Port = int(element)
	}
	if known { // else the object was closed meanwhile
		c.events.add(e)
	}
}

// asyncEventLen is the size of struct ib_uverbs_async_event_desc: element,
// event_type, reserved.
const asyncEventLen = 16
