package rdmacm

import "github.com/goverbs/goverbs/internal/operr"

// An ID is one end of a connection, a listener, or a datagram endpoint: what a
// socket is for TCP and UDP (struct rdma_cm_id). It is on an EventChannel. The
// methods that start an operation in the kernel return once the kernel has
// accepted it, and an event on the channel reports the outcome: no method waits
// for the peer or the network. The methods are safe for concurrent use.
//
// A SyncID is the same without a channel: its methods wait for the outcome.
type ID struct {
	// Value is the caller's own data. The ID of a connection request inherits it from the
	// listener.
	Value any

	*cmID
}

// CreateID creates an ID whose events arrive on the channel (rdma_create_id).
func (ch *EventChannel) CreateID(ps PortSpace) (*ID, error) {
	if _, err := ch.acquire(); err != nil {
		return nil, opErr(opCreateID, "", err)
	}
	id, err := createID(ch, ps, nil)
	if err != nil {
		ch.drop()
		return nil, err
	}
	return id.user, nil
}

// Close closes the QP, CQs and SRQ that the ID made, then destroys the ID
// (rdma_destroy_id). It ends a connection, or cancels a handshake, and tells the
// peer. If one of the caller's own objects
// prevents it, Close returns ErrBusy and may be called again. Closing a closed
// ID, or a nil one, does nothing.
func (id *ID) Close() error {
	if id == nil {
		return nil
	}
	return id.close()
}

// do runs a command whose outcome is an event.
func (id *ID) do(op string, command func() error) error {
	if id == nil {
		return invalid(op, "the ID is nil")
	}
	if err := id.begin(op); err != nil {
		return err
	}
	defer id.end()
	if id.inbox != nil {
		return opErr(op, "", errOnNone)
	}
	return command()
}

var errOnNone = operr.Invalid("the ID has become a SyncID: use the SyncID's method")
