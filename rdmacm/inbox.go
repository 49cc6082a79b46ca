package rdmacm

import (
	"context"
	"math"
	"slices"
	"sync"
)

// An inbox queues the events of a SyncID.
type inbox struct {
	mu     sync.Mutex
	events []*Event
	err    error         // why no more events come
	ready  chan struct{} // holds a token when there may be an event
	gone   chan struct{} // closed when err is set
	over   chan struct{} // closed when the connection is over or the device was removed
	isOver bool
}

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), gone: make(chan struct{}), over: make(chan struct{})}
}

// put adds an event, unless the inbox already has limit of them.
func (b *inbox) put(e *Event, limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || len(b.events) >= limit {
		return false
	}
	switch e.Type {
	case EventUnreachable, EventAddrChange:
		// The network may cause any number of these events, and the program may
		// never take them.
		if slices.ContainsFunc(b.events, func(other *Event) bool { return other.Type == e.Type }) {
			return true
		}
	case EventDisconnected, EventTimewaitExit, EventDeviceRemoval:
		if !b.isOver {
			b.isOver = true
			close(b.over)
		}
	}
	b.events = append(b.events, e)
	b.signal()
	return true
}

func (b *inbox) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *inbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events)
}

// next waits for an event and takes it.
func (b *inbox) next(ctx context.Context) (*Event, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	for {
		// First, so that a call whose context has ended takes no event.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if e := b.take(); e != nil {
			return e, nil
		}
		select {
		case <-b.ready:
		case <-b.gone:
			return nil, b.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes the next event. It returns nil if there is none.
func (b *inbox) take() *Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == 0 {
		return nil
	}
	e := b.events[0]
	b.events = b.events[1:]
	if len(b.events) > 0 {
		b.signal()
	}
	return e
}

// giveBack puts a taken event back, as the next one.
func (b *inbox) giveBack(e *Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.events = slices.Insert(b.events, 0, e)
		b.signal()
	}
}

// waitOver waits until the connection is over, without taking an event.
func (b *inbox) waitOver(ctx context.Context) error {
	select {
	case <-b.over:
		return nil
	case <-b.gone:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends waits with err, and returns the events that nobody took.
func (b *inbox) end(err error) []*Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		close(b.gone)
	}
	left := b.events
	b.events = nil
	return left
}

// shared is the channel behind all SyncIDs.
var shared = sharedChannel{open: NewEventChannel}

type sharedChannel struct {
	open func() (*EventChannel, error)
	mu   sync.Mutex
	ch   *EventChannel
}

// acquire returns the channel, held for one more ID. The first one opens it.
func (s *sharedChannel) acquire() (*EventChannel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		ch, err := s.open()
		if err != nil {
			return nil, err
		}
		s.ch = ch
		go s.deliver(ch)
	}
	return s.ch, s.ch.hold()
}

// release closes the channel after the last ID has left it. It also closes a lost
// channel.
func (s *sharedChannel) release(ch *EventChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.Close() == nil && s.ch == ch {
		s.ch = nil
	}
}

// deliver moves events to their IDs' inboxes until the channel is closed or lost.
func (s *sharedChannel) deliver(ch *EventChannel) {
	for {
		resp, err := ch.take(context.Background(), &ch.handing)
		if err != nil {
			s.abandon(ch, opErr("get event", "", err))
			return
		}
		if e := ch.decode(resp); e != nil {
			e.deliver()
		}
		ch.handing.Unlock()
	}
}

// abandon ends the waits of the SyncIDs on a channel that delivers no more events. The
// next ID opens another channel. One cause is a change of the process's
// credentials: the kernel then refuses every command on an open channel.
func (s *sharedChannel) abandon(ch *EventChannel, err error) {
	s.mu.Lock()
	if s.ch == ch {
		s.ch = nil
	}
	s.mu.Unlock()
	// Set lost first: an ID that is not yet in the registry checks it once it is.
	ch.lost.Store(&err)
	for _, id := range registry.ids() {
		id.endWaits(ch)
	}
}

// endWaits ends waits on the ID if it is on the channel and the channel is lost.
func (id *cmID) endWaits(ch *EventChannel) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := ch.lost.Load(); err != nil && id.ch == ch && id.inbox != nil {
		id.inbox.end(*err)
	}
}

// deliver delivers an event of a SyncID. It must not wait for an ID's operations:
// that would delay the events of the others.
func (e *Event) deliver() {
	to, limit := e.of, math.MaxInt
	if e.Type == EventConnectRequest {
		to = e.listen
		e.SyncID = &SyncID{e.of}
	}
	e.ID, e.Listen = nil, nil // from before the ID was a SyncID
	to.mu.Lock()
	box := to.inbox
	if e.Type == EventConnectRequest || e.client.IsValid() {
		limit = to.backlog
	}
	to.mu.Unlock()
	e.notifyWatch(to)
	if e.Multicast != nil && e.Multicast.take(e) {
		return
	}
	if (box == nil || !box.put(e, limit)) && e.Type == EventConnectRequest {
		// The kernel does the same when the backlog is full.
		e.of.close()
	}
}

// notifyWatch calls the ID's watch function.
func (e *Event) notifyWatch(id *cmID) {
	id.mu.Lock()
	watch := id.watch
	id.mu.Unlock()
	if watch != nil {
		watch(e)
	}
}
