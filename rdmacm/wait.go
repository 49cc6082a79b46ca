package rdmacm

import "context"

// start begins a command that ends with an event. It returns the inbox to wait
// at, or nil if the ID is on a channel.
func (id *ID) start(ctx context.Context, op string) (*inbox, error) {
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	if err := ctx.Err(); err != nil {
		return nil, opErr(op, "", err)
	}
	if err := id.begin(op); err != nil {
		return nil, err
	}
	return id.inbox, nil
}

// wait waits at the inbox, if there is one, for the event that ends a command.
// object returns the object for an error.
func (id *ID) wait(ctx context.Context, op string, object func() string, box *inbox, want EventType) (*Event, error) {
	if box == nil {
		return nil, nil
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
			err = ErrDisconnected
		}
		if err != nil {
			return nil, opErr(op, object(), err)
		}
		// Ignored: EventAddrChange, EventTimewaitExit, and the end of an earlier command.
	}
}

// Request waits for the next connection request to a listener on no channel
// (rdma_get_request). The event has the new ID, which must be accepted or
// rejected, and closed.
func (id *ID) Request(ctx context.Context) (*Event, error) {
	const op = "get request"
	box, err := id.start(ctx, op)
	if err != nil {
		return nil, err
	}
	id.end()
	if box == nil {
		return nil, opErr(op, "", errOnChannel)
	}
	return id.wait(ctx, op, func() string { return "on " + id.LocalAddr().String() }, box, EventConnectRequest)
}
