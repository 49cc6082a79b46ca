package rdmanl

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

// An EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events. Kernels since 6.12 report all but EventPortState, which a Watcher detects itself on
// every kernel.
const (
	EventRegistered     EventKind = EventKind(uapi.RDMA_REGISTER_EVENT)      // the device was added
	EventUnregistered   EventKind = EventKind(uapi.RDMA_UNREGISTER_EVENT)    // the device was removed
	EventNetdevAttached EventKind = EventKind(uapi.RDMA_NETDEV_ATTACH_EVENT) // a port has got a network interface
	EventNetdevDetached EventKind = EventKind(uapi.RDMA_NETDEV_DETACH_EVENT) // a port has lost its network interface
	EventRenamed        EventKind = EventKind(uapi.RDMA_RENAME_EVENT)        // the device has another name; 6.12 doesn't report it
	EventNetdevRenamed  EventKind = EventKind(uapi.RDMA_NETDEV_RENAME_EVENT) // the network interface has another name; 6.12 doesn't report it
	EventPortState      EventKind = 0xff                                     // the state of a port has changed: the link is up or down
)

func (k EventKind) String() string {
	if k == EventPortState {
		return "PORT_STATE"
	}
	return named([]string{"REGISTER", "UNREGISTER", "NETDEV_ATTACH", "NETDEV_DETACH", "RENAME", "NETDEV_RENAME"}, k)
}

// An Event is something that happened to a device.
type Event struct {
	Kind        EventKind              // what happened
	Index       Optional[uint32]       // of the device
	Device      Optional[string]       // its name
	Port        Optional[uint32]       // of events about ports and network interfaces
	State       Optional[ib.PortState] // with EventPortState: the state now
	NetdevIndex Optional[uint32]       // the network interface
	Netdev      Optional[string]       // its name
}

func decodeEvent(d *decoder, b []byte) Event {
	var e Event
	known := false
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_EVENT_TYPE:
			e.Kind, known = EventKind(d.u8(v)), true
		case uapi.RDMA_NLDEV_ATTR_DEV_INDEX:
			e.Index = Some(d.u32(v))
		case uapi.RDMA_NLDEV_ATTR_DEV_NAME:
			e.Device = Some(d.text(v))
		case uapi.RDMA_NLDEV_ATTR_PORT_INDEX:
			e.Port = Some(d.u32(v))
		case uapi.RDMA_NLDEV_ATTR_NDEV_INDEX:
			e.NetdevIndex = Some(d.u32(v))
		case uapi.RDMA_NLDEV_ATTR_NDEV_NAME:
			e.Netdev = Some(d.text(v))
		}
	})
	d.need(known, "an event without a kind")
	return e
}

// decodeEvents decodes messages that were received at once.
func decodeEvents(b []byte) ([]Event, error) {
	if len(b) < headerSize {
		return nil, malformed("a message of %d bytes", len(b))
	}
	// Events have any sequence number.
	a := answer{sequence: binary.NativeEndian.Uint32(b[8:])}
	if _, err := a.add(b); err != nil {
		return nil, err
	}
	return decodeAll(a.bodies, decodeEvent)
}

// WatchOptions configure a Watcher.
type WatchOptions struct {
	// Interval is the time between comparisons of the ports' states; 0 stands for a second.
	// See Watcher.
	Interval time.Duration
}

// A Watcher reports events of the devices and ports of a network namespace. Its methods are safe for
// concurrent use.
//
// Since Linux 6.12, the kernel reports when devices come and go, and when their ports get and
// lose network interfaces. The kernel reports that a link is up or down only to programs that
// have opened the device. So the Watcher compares the states of all ports at each Interval,
// and when a network interface has changed. It reports a change of an Ethernet link at once,
// and of an InfiniBand link within the Interval, unless the link is up again by then. The
// ports of a new device count as down before it came, and those of a removed device as down
// from then on. This also works on older kernels.
type Watcher struct {
	interval time.Duration
	reports  chan report
	changed  chan struct{} // holds a token when the states may have changed
	closed   chan struct{}
	close    func() error // closes the sockets and the channel, once
	running  sync.WaitGroup

	query *dialogue
	ports map[portKey]Link
}

// A report is a result of Next.
type report struct {
	event Event
	err   error
}

type portKey struct{ dev, port uint32 }

// settles is how long a port may take to follow its network interface. The kernel reports the interface's
// change before drivers learn of it.
const settles = 100 * time.Millisecond

// Watch begins to watch the devices of this network namespace. It needs no privilege. If the kernel's
// module ib_core is not loaded (the first driver of a device loads it), Watch fails with ErrNoDevice.
func Watch(ctx context.Context, o WatchOptions) (*Watcher, error) {
	const op = "watch devices"
	if o.Interval < 0 {
		return nil, invalid(op, "", "an interval of %v", o.Interval)
	}
	system, err := GetSystem(ctx)
	if err != nil {
		return nil, err
	}
	// All sockets are opened here: another thread may be in another namespace.
	var sockets []*socket
	w := &Watcher{interval: cmp.Or(o.Interval, time.Second), reports: make(chan report), changed: make(chan struct{}, 1), closed: make(chan struct{})}
	w.close = sync.OnceValue(func() error {
		close(w.closed)
		var errs []error
		for _, s := range sockets {
			errs = append(errs, s.close())
		}
		return errors.Join(errs...)
	})
	socketBy := func(open func() (*socket, error)) *socket {
		if err != nil {
			return nil
		}
		var s *socket
		if s, err = open(); err == nil {
			sockets = append(sockets, s)
		}
		return s
	}
	query, netdevs := socketBy(open), socketBy(watchNetdevs)
	var events *socket
	if system.Monitor.Or(false) {
		if events = socketBy(open); err == nil {
			err = events.join(uapi.RDMA_NL_GROUP_NOTIFY)
		}
	}
	if err == nil {
		w.query = newDialogue(query)
		w.ports, err = w.look(ctx)
	}
	if err != nil {
		w.close()
		return nil, opErr(op, "", err)
	}
	w.running.Go(w.compare)
	w.running.Go(func() { w.follow(netdevs) })
	if events != nil {
		w.running.Go(func() { w.listen(events) })
	}
	return w, nil
}

// deliver passes a result to Next. It returns false once the watch has ended.
func (w *Watcher) deliver(r report) bool {
	select {
	case w.reports <- r:
		return true
	case <-w.closed:
		return false
	}
}

// wake makes compare run now.
func (w *Watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// listen passes the kernel's events to Next.
func (w *Watcher) listen(s *socket) {
	buffer := make([]byte, bufferSize)
	for {
		b, err := s.receive(context.Background(), buffer)
		var events []Event
		if err == nil {
			events, err = decodeEvents(b)
		}
		if err != nil && !w.deliver(report{err: err}) {
			return
		}
		for _, e := range events {
			if !w.deliver(report{event: e}) {
				return
			}
		}
		w.wake()
	}
}

// follow calls wake when network interfaces change. It ignores the details, and lost messages.
func (w *Watcher) follow(s *socket) {
	buffer := make([]byte, bufferSize)
	for {
		_, err := s.receive(context.Background(), buffer)
		if err != nil && !errors.Is(err, syscall.ENOBUFS) && !errors.Is(err, ErrAnswer) {
			return // closed, or the interval must suffice
		}
		w.wake()
	}
}

// compare reports, again and again, which ports have changed their state.
func (w *Watcher) compare() {
	timer := time.NewTimer(w.interval)
	defer timer.Stop()
	for {
		select {
		case <-w.closed:
			return
		case <-w.changed:
			timer.Reset(min(settles, w.interval))
		case <-timer.C:
			timer.Reset(w.interval)
		}
		now, err := w.look(context.Background())
		if err != nil {
			if !w.deliver(report{err: err}) {
				return
			}
			continue
		}
		for _, e := range changes(w.ports, now) {
			if !w.deliver(report{event: e}) {
				return
			}
		}
		w.ports = now
	}
}

// look reads the states of all ports. A device that goes away meanwhile keeps its states until it is
// no longer listed.
func (w *Watcher) look(ctx context.Context) (map[portKey]Link, error) {
	bodies, err := w.query.ask(ctx, list(uapi.RDMA_NLDEV_CMD_GET))
	if err != nil {
		return nil, err
	}
	devices, err := decodeAll(bodies, decodeDevice)
	if err != nil {
		return nil, err
	}
	ports := make(map[portKey]Link)
	for _, d := range devices {
		for port := uint32(1); port <= d.Ports; port++ {
			k := portKey{d.Index, port}
			bodies, err := w.query.ask(ctx, get(uapi.RDMA_NLDEV_CMD_PORT_GET).port(d.Index, port))
			switch {
			case errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODEV):
				if before, ok := w.ports[k]; ok {
					ports[k] = before
				}
				continue
			case err != nil:
				return nil, err
			}
			if ports[k], err = decodeOne(bodies, decodeLink); err != nil {
				return nil, err
			}
		}
	}
	return ports, nil
}

// changes returns events for the ports whose states differ, by device and port. A missing port counts as
// down.
func changes(before, after map[portKey]Link) []Event {
	keys := make(map[portKey]bool)
	for k := range before {
		keys[k] = true
	}
	for k := range after {
		keys[k] = true
	}
	var events []Event
	for _, k := range slices.SortedFunc(maps.Keys(keys), func(a, b portKey) int {
		return cmp.Or(cmp.Compare(a.dev, b.dev), cmp.Compare(a.port, b.port))
	}) {
		link, ok := after[k]
		if !ok {
			link = before[k]
			link.State = Some(ib.PortDown)
		}
		if now := link.State.Or(ib.PortDown); now != before[k].State.Or(ib.PortDown) {
			events = append(events, Event{Kind: EventPortState, Index: Some(k.dev), Device: Some(link.Device), Port: Some(k.port),
				State: Some(now), NetdevIndex: link.NetdevIndex, Netdev: link.Netdev})
		}
	}
	return events
}

// Next waits for an event. If the kernel's events come faster than Next receives them, some are
// lost: the error is then ENOBUFS, and the next call continues. The last state of a port is never
// lost.
func (w *Watcher) Next(ctx context.Context) (Event, error) {
	const op = "wait for an event"
	if ctx.Err() != nil {
		return Event{}, opErr(op, "", context.Cause(ctx))
	}
	select {
	case r := <-w.reports:
		if r.err != nil {
			return Event{}, opErr(op, "", r.err)
		}
		return r.event, nil
	case <-ctx.Done():
		return Event{}, opErr(op, "", context.Cause(ctx))
	case <-w.closed:
		return Event{}, opErr(op, "", os.ErrClosed)
	}
}

// Close ends the watch. A waiting Next fails with os.ErrClosed.
func (w *Watcher) Close() error {
	if w == nil {
		return nil
	}
	err := w.close()
	w.running.Wait()
	return err
}
