package rdmacm

import "context"

// start holds the ID for a command whose end is an event, and returns the
// inbox to wait at, nil if the ID's events come on a channel.
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
// object says in an error what the command was about.
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
		if err == nil && e.Type == Disconnected {
			err = ErrDisconnected
		}
		if err != nil {
			return nil, opErr(op, object(), err)
		}
		// Of no consequence: AddrChange, TimewaitExit, the end of an earlier task.
	}
}

// Request waits for the next connection request to a listener on no channel
// (rdma_get_request). The request's event names the new ID, for Accept or
// Reject, and for Close.
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
	return id.wait(ctx, op, func() string { return "on " + id.LocalAddr().String() }, box, ConnectRequest)
}
