package rdmanl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/uapi"
)

// An EventKind is what happened to a device.
type EventKind uint8

// The kinds of events.
const (
	EventRegistered     EventKind = EventKind(uapi.RDMA_REGISTER_EVENT)      // the device has come
	EventUnregistered   EventKind = EventKind(uapi.RDMA_UNREGISTER_EVENT)    // it has gone
	EventNetdevAttached EventKind = EventKind(uapi.RDMA_NETDEV_ATTACH_EVENT) // a port has got a network interface
	EventNetdevDetached EventKind = EventKind(uapi.RDMA_NETDEV_DETACH_EVENT) // a port has lost it
	EventRenamed        EventKind = EventKind(uapi.RDMA_RENAME_EVENT)        // the device has another name
	EventNetdevRenamed  EventKind = EventKind(uapi.RDMA_NETDEV_RENAME_EVENT) // the network interface has another name
)

func (k EventKind) String() string {
	return named([]string{"REGISTER", "UNREGISTER", "NETDEV_ATTACH", "NETDEV_DETACH", "RENAME", "NETDEV_RENAME"}, k)
}

// An Event is something that happened to a device.
type Event struct {
	Kind        EventKind        // what happened
	Index       Optional[uint32] // of the device
	Device      Optional[string] // its name
	Port        Optional[uint32] // of events about network interfaces
	NetdevIndex Optional[uint32] // the network interface
	Netdev      Optional[string] // its name
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

// decodeEvents decodes what was received at once.
func decodeEvents(b []byte) ([]Event, error) {
	if len(b) < headerSize {
		return nil, malformed("a message of %d bytes", len(b))
	}
	// Events have whatever sequence number.
	a := answer{sequence: binary.NativeEndian.Uint32(b[8:])}
	if _, err := a.add(b); err != nil {
		return nil, err
	}
	return decodeAll(a.bodies, decodeEvent)
}

// A Watcher receives events. Its methods may be called at the same time.
type Watcher struct {
	s       *socket
	mu      sync.Mutex // held while an event is received
	buffer  []byte
	pending []Event
}

// Watch begins to watch the devices of this network namespace. Kernels since 6.12 have events; with
// an older one, the error matches errors.ErrUnsupported.
func Watch(ctx context.Context) (*Watcher, error) {
	const op = "watch devices"
	system, err := GetSystem(ctx)
	if err != nil {
		return nil, err
	}
	if !system.Monitor.Or(false) {
		return nil, &OpError{Op: op, Err: fmt.Errorf("%w by the kernel", errors.ErrUnsupported), Hint: "this needs Linux 6.12"}
	}
	s, err := open()
	if err != nil {
		return nil, opErr(op, "", err)
	}
	if err := s.join(uapi.RDMA_NL_GROUP_NOTIFY); err != nil {
		s.close()
		return nil, opErr(op, "", err)
	}
	return &Watcher{s: s, buffer: make([]byte, bufferSize)}, nil
}

// Next waits for an event. If events come faster than they are received, some are lost: then the
// error is ENOBUFS, and the next call goes on.
func (w *Watcher) Next(ctx context.Context) (Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) == 0 {
		b, err := w.s.receive(ctx, w.buffer)
		if err == nil {
			w.pending, err = decodeEvents(b)
		}
		if err != nil {
			return Event{}, opErr("wait for an event", "", err)
		}
	}
	e := w.pending[0]
	w.pending = w.pending[1:]
	return e, nil
}

// Close ends the watch. A Next that waits fails.
func (w *Watcher) Close() error { return w.s.close() }
