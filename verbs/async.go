package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"

	"github.com/goverbs/goverbs/uapi"
)

// An EventType is the type of an asynchronous event (enum ib_event_type). It determines
// which field of an Event is set.
type EventType uint32

const (
	EventCQErr            EventType = EventType(uapi.IB_EVENT_CQ_ERR)              // Event.CQ has overrun, or the device could not write to it. Its QPs fail
	EventQPFatal          EventType = EventType(uapi.IB_EVENT_QP_FATAL)            // Event.QP has failed in a way that no completion can report
	EventQPReqErr         EventType = EventType(uapi.IB_EVENT_QP_REQ_ERR)          // a peer sent Event.QP an invalid request. The QP has failed
	EventQPAccessErr      EventType = EventType(uapi.IB_EVENT_QP_ACCESS_ERR)       // a peer asked Event.QP for memory that it may not access. The QP has failed
	EventCommEst          EventType = EventType(uapi.IB_EVENT_COMM_EST)            // Event.QP received its first message, before the connection was confirmed
	EventSQDrained        EventType = EventType(uapi.IB_EVENT_SQ_DRAINED)          // the send queue of Event.QP is empty: see QPAttr.EnSQDAsyncNotify
	EventPathMig          EventType = EventType(uapi.IB_EVENT_PATH_MIG)            // Event.QP uses its alternate path from now on
	EventPathMigErr       EventType = EventType(uapi.IB_EVENT_PATH_MIG_ERR)        // Event.QP could not change to its alternate path
	EventDeviceFatal      EventType = EventType(uapi.IB_EVENT_DEVICE_FATAL)        // the device is gone or broken
	EventPortActive       EventType = EventType(uapi.IB_EVENT_PORT_ACTIVE)         // the link of Event.Port is up
	EventPortErr          EventType = EventType(uapi.IB_EVENT_PORT_ERR)            // the link of Event.Port is down
	EventLIDChange        EventType = EventType(uapi.IB_EVENT_LID_CHANGE)          // the LID of Event.Port has changed
	EventPKeyChange       EventType = EventType(uapi.IB_EVENT_PKEY_CHANGE)         // the P_Key table of Event.Port has changed
	EventSMChange         EventType = EventType(uapi.IB_EVENT_SM_CHANGE)           // Event.Port has another subnet manager
	EventSRQErr           EventType = EventType(uapi.IB_EVENT_SRQ_ERR)             // the device could not read Event.SRQ. Its QPs fail
	EventSRQLimitReached  EventType = EventType(uapi.IB_EVENT_SRQ_LIMIT_REACHED)   // Event.SRQ has fewer receives than its limit. The limit is 0 from now on
	EventQPLastWQEReached EventType = EventType(uapi.IB_EVENT_QP_LAST_WQE_REACHED) // Event.QP, in QPErr, takes no more receives from its SRQ
	EventClientReregister EventType = EventType(uapi.IB_EVENT_CLIENT_REREGISTER)   // the subnet manager asks programs on Event.Port to subscribe again
	EventGIDChange        EventType = EventType(uapi.IB_EVENT_GID_CHANGE)          // the GID table of Event.Port has changed
	EventWQFatal          EventType = EventType(uapi.IB_EVENT_WQ_FATAL)            // Event.WQ has failed, and is in WQErr
)

func (t EventType) String() string { return uapi.EnumIbEventType.Short(uint64(t)) }

// An Event is an asynchronous event. At most one of QP, CQ, SRQ, WQ and Port is set: the
// subject of the event.
type Event struct {
	Type EventType // determines which of the other fields is set
	Port int       // from 1; 0 if the event isn't about a port
	QP   *QP       // nil if the event isn't about a QP
	CQ   *CQ       // nil if it isn't about a CQ
	SRQ  *SRQ      // nil if it isn't about an SRQ
	WQ   *WQ       // nil if it isn't about a WQ
}

const opEvents = "wait for asynchronous event"

// Events subscribes to the device's asynchronous events (ibv_get_async_event), and returns an
// iterator over them. Events need no acknowledgement. Any number of subscribers may exist. Each
// receives all events that occur after its call of Events, even before its loop begins.
//
// An event that recurs before the subscriber has received it is delivered once. So the
// number of objects bounds the memory for a slow subscriber. Undelivered events of an
// object are dropped when the object is closed.
//
// When a loop ends, the remaining events stay for the next loop over the same iterator. The
// subscription lasts until ctx ends or the Device is closed, so a program that needs no
// more events ends ctx. If several goroutines loop over one iterator, each event is
// delivered to one of them.
//
// A loop ends with an error: that of ctx, ErrClosed after Device.Close, or ErrDeviceRemoved.
// When the device is removed, EventDeviceFatal is delivered to each subscriber before that
// error.
func (d *Device) Events(ctx context.Context) iter.Seq2[Event, error] {
	switch {
	case ctx == nil:
		return noEvents(&OpError{Op: opEvents, Err: errNoContext})
	case d == nil:
		return noEvents(&OpError{Op: opEvents, Err: errNil})
	}
	s := &subscriber{more: make(chan struct{}, 1)}
	if !d.subscribe(ctx, s) {
		return noEvents(opErr(opEvents, "device", ErrClosed))
	}
	return func(yield func(Event, error) bool) {
		for {
			if e, err := d.nextEvent(ctx, s); !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func noEvents(err error) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { yield(Event{}, err) }
}

// nextEvent waits for the subscriber's next event.
func (d *Device) nextEvent(ctx context.Context, s *subscriber) (Event, error) {
	for {
		if d.closing.Load() {
			return Event{}, opErr(opEvents, "device", ErrClosed)
		}
		if err := ctx.Err(); err != nil {
			return Event{}, opErr(opEvents, "", err)
		}
		gone := d.removal.announced() // before take: EventDeviceFatal comes first
		if e, ok := d.takeEvent(s); ok {
			return e, nil
		}
		if gone {
			return Event{}, opErr(opEvents, d.info.Name(), ErrDeviceRemoved)
		}
		select {
		case <-s.more:
		case <-d.removal.done:
		case <-d.events.ended:
			if err := d.events.err; err != nil {
				return Event{}, opErr(opEvents, "", err)
			}
		case <-ctx.Done():
		}
	}
}

// subscribe adds a subscriber until ctx ends, unless the Device is closed.
func (d *Device) subscribe(ctx context.Context, s *subscriber) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil || d.closing.Load() {
		return false
	}
	d.events.subscribers = append(d.events.subscribers, s)
	s.stop = context.AfterFunc(ctx, func() { d.unsubscribe(s) })
	return true
}

// unsubscribeAll ends all subscriptions, when the Device is closed.
func (d *Device) unsubscribeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.events.subscribers {
		s.stop() // else the context would keep the Device alive
	}
	d.events.subscribers = nil
}

func (d *Device) takeEvent(s *subscriber) (e Event, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.take()
}

func (d *Device) unsubscribe(s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events.subscribers = slices.DeleteFunc(d.events.subscribers, func(x *subscriber) bool { return x == s })
}

// events delivers asynchronous events to the subscribers. A goroutine reads them from the
// kernel even without subscribers: a CQ must learn of its overrun, and all objects of the
// device's removal.
type events struct {
	subscribers []*subscriber
	ended       chan struct{} // closed when the reader has stopped
	err         error         // why the reader stopped, if not by Close or removal; set before ended is closed
}

func (q *events) init() { q.ended = make(chan struct{}) }

func (q *events) add(e Event) {
	for _, s := range q.subscribers {
		s.add(e)
	}
}

// forget drops the events of an object that is being closed, as the kernel does.
func (q *events) forget(m member) {
	for _, s := range q.subscribers {
		s.forget(m)
	}
}

// A subscriber queues the events that it has not received yet.
type subscriber struct {
	list []Event
	more chan struct{} // holds a token when there are events
	stop func() bool   // stops the context's AfterFunc
}

// add queues an event unless it is already queued. This bounds the queue by the
// number of objects.
func (s *subscriber) add(e Event) {
	if !slices.Contains(s.list, e) {
		s.list = append(s.list, e)
		s.signal()
	}
}

func (s *subscriber) signal() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() (e Event, ok bool) {
	if len(s.list) == 0 {
		return Event{}, false
	}
	e = s.list[0]
	if s.list = s.list[1:]; len(s.list) > 0 {
		s.signal() // wake another goroutine
	}
	return e, true
}

func (s *subscriber) forget(m member) {
	s.list = slices.DeleteFunc(s.list, func(e Event) bool {
		switch m := m.(type) {
		case *QP:
			return e.QP == m
		case *CQ:
			return e.CQ == m
		case *SRQ:
			return e.SRQ == m
		case *WQ:
			return e.WQ == m
		}
		return false
	})
}

// readEvents reads events until the Device is closed or the device is gone.
func (d *Device) readEvents() {
	defer close(d.events.ended)
	for {
		var b [asyncEventLen]byte
		switch err := d.async.read(context.Background(), b[:]); {
		case err == nil:
			d.event(EventType(binary.NativeEndian.Uint32(b[8:])), binary.NativeEndian.Uint64(b[:]))
		case errors.Is(err, ErrDeviceRemoved):
			d.deviceGone()
			return
		case errors.Is(err, ErrClosed):
			return
		default:
			d.events.err = err
			return
		}
	}
}

// event handles an event. element is an object's id, or a port.
func (d *Device) event(typ EventType, element uint64) {
	if typ == EventDeviceFatal {
		d.deviceGone()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := Event{Type: typ}
	known := true
	switch typ {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig, EventPathMigErr, EventQPLastWQEReached:
		e.QP, known = d.members.named[element].(*QP)
	case EventCQErr:
		if e.CQ, known = d.members.named[element].(*CQ); known {
			e.CQ.overrun()
		}
	case EventSRQErr, EventSRQLimitReached:
		e.SRQ, known = d.members.named[element].(*SRQ)
	case EventWQFatal:
		e.WQ, known = d.members.named[element].(*WQ)
	default:
		e.Port = int(element)
	}
	if known { // else the object was closed meanwhile
		d.events.add(e)
	}
}

// asyncEventLen is the size of struct ib_uverbs_async_event_desc: element,
// event_type, reserved.
const asyncEventLen = 16
