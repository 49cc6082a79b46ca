package rdmacm

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
)

// TestEventsInStates delivers each event to a waiting SyncID: the event ends the wait as the table in
// the package's documentation says, or the wait continues. TestConnEnds tests Conns.
func TestEventsInStates(t *testing.T) {
	connecting := map[EventType]error{
		EventAddrError: ErrAddrResolution, EventRouteError: ErrRouteResolution, // of no earlier command
		EventConnectError: ErrConnect, EventUnreachable: ErrUnreachable, EventRejected: ErrRejected,
		EventDisconnected: ErrDisconnected, EventDeviceRemoval: ErrDeviceRemoved,
	}
	listening := map[EventType]error{
		EventAddrError: ErrAddrResolution, EventRouteError: ErrRouteResolution,
		EventConnectError: ErrConnect, EventUnreachable: ErrUnreachable, EventRejected: ErrRejected,
		EventDisconnected: ErrDisconnected, EventDeviceRemoval: ErrDeviceRemoved, EventAddrChange: ErrUnreachable,
	}
	for typ := EventAddrResolved; typ <= EventUser; typ++ {
		if typ == EventMulticastJoin || typ == EventMulticastError {
			continue // a Multicast's
		}
		for state, wants := range map[string]map[EventType]error{"connecting": connecting, "listening": listening} {
			if typ == EventConnectRequest && state == "connecting" {
				continue
			}
			want := wants[typ] // nil if the wait continues
			k := newFakeKernel()
			k.share(t)
			id := rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
			id.bound.dev = &device{refs: 2}
			id.backlog = 8
			ch := k.sharedChannel()
			var err error
			if state == "listening" {
				if typ != EventConnectRequest {
					k.happen(ch, event(id, typ))
				}
				if typ != EventDeviceRemoval {
					k.request(ch, id)
				}
				var e *Event
				if e, err = id.Request(patient(t)); err == nil {
					rdmatest.Check(t, e.SyncID.Close())
				}
			} else {
				k.mu.Lock()
				k.hook = func(command, _ uint32) error {
					if command == uapi.RDMA_USER_CM_CMD_CONNECT {
						k.happen(ch, event(id, typ))
						k.happen(ch, event(id, EventConnectResponse))
					}
					return nil
				}
				k.mu.Unlock()
				_, err = id.Connect(patient(t), &ConnParam{QPNum: 1})
			}
			if (err == nil) != (want == nil) || !errors.Is(err, want) {
				t.Errorf("%s, %v: %v, want %v", state, typ, err, want)
			}
			rdmatest.Check(t, id.Close())
		}
	}
}

// TestEventsOfTheNetwork: the events of a network that changes often use bounded memory.
func TestEventsOfTheNetwork(t *testing.T) {
	box := newInbox()
	for range 1000 {
		for _, typ := range []EventType{EventUnreachable, EventAddrChange} {
			if !box.put(&Event{Type: typ}, 1<<30) {
				t.Fatal("refused")
			}
		}
	}
	if n := box.len(); n != 2 {
		t.Errorf("%d events, want one of each", n)
	}
	box.put(&Event{Type: EventTimewaitExit}, 1<<30)
	rdmatest.Check(t, box.waitOver(patient(t)))
}
