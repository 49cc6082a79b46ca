package rdmacm

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/internal/operr"
)

// A SyncID is one end of a connection, a listener, or a datagram endpoint, as an
// ID is, but on no EventChannel (a struct rdma_cm_id without a channel). The
// methods that take a context wait for the outcome of the operation, and return
// its failure as an error. After the context has ended such a wait, the SyncID can
// only be closed. The methods are safe for concurrent use.
//
// All SyncIDs share one file descriptor and one goroutine.
type SyncID struct{ *cmID }

// CreateSyncID creates an ID whose methods wait (rdma_create_id without a
// channel).
func CreateSyncID(ps PortSpace) (*SyncID, error) {
	ch, err := shared.acquire()
	if err != nil {
		return nil, err
	}
	id, err := createID(ch, ps, newInbox())
	if err != nil {
		ch.drop()
		shared.release(ch)
		return nil, err
	}
	return &SyncID{id}, nil
}

// Close closes the SyncID as ID.Close closes an ID. Waits on the SyncID end with ErrClosed.
// Closing a closed SyncID, or a nil one, does nothing.
func (id *SyncID) Close() error {
	if id == nil {
		return nil
	}
	return id.close()
}

// start begins a command whose outcome is an event. It returns the inbox to wait on.
func (id *SyncID) start(ctx context.Context, op string) (*inbox, error) {
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	if err := ctx.Err(); err != nil {
		return nil, opErr(op, "", err)
	}
	if err := id.begin(op); err != nil {
		return nil, err
	}
	if id.inbox == nil {
		id.end()
		return nil, opErr(op, "", errOnChannel)
	}
	return id.inbox, nil
}

// do runs a command and waits for the event that reports its success. object
// returns the object for an error. An event that reports a failure is returned with the error.
func (id *SyncID) do(ctx context.Context, op string, command func() error, object func() string, want EventType) (*Event, error) {
	box, err := id.start(ctx, op)
	if err != nil {
		return nil, err
	}
	err = command()
	id.end()
	if err != nil {
		return nil, err
	}
	for {
		e, err := box.next(ctx)
		if err == nil && e.Type == want && e.Err() == nil {
			return e, nil
		}
		if err == nil {
			err = e.Err()
		}
		if err == nil && e.Type == EventDisconnected {
			if op == opAccept {
				// The peer has had the answer. Its confirmation is late or lost.
				box.giveBack(e)
				return e, nil
			}
			err = ErrDisconnected
		}
		if err == nil && e.Type == EventAddrChange && want == EventConnectRequest {
			err = errMoved // requests go where the address is now
		}
		if err != nil {
			return e, opErr(op, object(), err)
		}
		// Ignored: EventAddrChange otherwise, EventTimewaitExit, and the end of an earlier command.
	}
}

var errOnChannel = operr.Invalid("the ID is on a channel, and so are its events")

// Request waits for the next connection request to a listener (rdma_get_request). The event's
// SyncID is new. It must be accepted or rejected, and closed. If the listener's address moves
// to another device, Request fails with ErrUnreachable: listen again. If this side lacks a
// resource for a client, such as a file descriptor for its device, the client is rejected, and
// Request fails with ErrConnect and the reason. A later Request may succeed.
func (id *SyncID) Request(ctx context.Context) (*Event, error) {
	e, err := id.request(ctx)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// request is like Request, but returns the event of a rejected client along with the error.
func (id *SyncID) request(ctx context.Context) (*Event, error) {
	object := func() string { return "on " + id.LocalAddr().String() }
	return id.do(ctx, "get request", func() error { return nil }, object, EventConnectRequest)
}

// Event waits for the next event. It is for the events that no method waits for,
// such as EventDisconnected and EventDeviceRemoval.
func (id *SyncID) Event(ctx context.Context) (*Event, error) {
	const op = "get event"
	box, err := id.start(ctx, op)
	if errors.Is(err, ErrDeviceRemoved) {
		// Events that have arrived come first, including that of the removal.
		id.mu.Lock()
		box := id.inbox
		id.mu.Unlock()
		if box != nil {
			if e := box.take(); e != nil {
				return e, nil
			}
		}
	}
	if err != nil {
		return nil, err
	}
	id.end()
	e, err := box.next(ctx)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	return e, nil
}
