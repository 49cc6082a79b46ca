package rdmacm

import (
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/uapi"
)

const opMigrate = "migrate ID"

// Migrate moves the ID and its events to another channel (rdma_migrate_id).
func (id *ID) Migrate(to *EventChannel) error {
	return id.migrate(false, to.acquire, nil)
}

// MigrateSync takes the ID off its channel, and returns it as a SyncID
// (rdma_migrate_id without a channel). Both are one ID in the kernel: closing one
// closes the other. The methods of the ID whose outcome is an event return an
// error from now on. Events that the channel has not delivered go to the SyncID.
func (id *ID) MigrateSync() (*SyncID, error) {
	if err := id.migrate(false, shared.acquire, newInbox()); err != nil {
		return nil, err
	}
	return &SyncID{id.cmID}, nil
}

// Migrate moves the ID and its events to a channel, and returns it as an ID
// (rdma_migrate_id). Both are one ID in the kernel: closing one closes the other.
// The methods of the SyncID that wait return an error from now on. If the SyncID
// has events that nobody has taken, Migrate returns ErrBusy and changes nothing.
func (id *SyncID) Migrate(to *EventChannel) (*ID, error) {
	if err := id.migrate(true, to.acquire, nil); err != nil {
		return nil, err
	}
	return id.owner(), nil
}

// acquire holds the channel for one more ID.
func (ch *EventChannel) acquire() (*EventChannel, error) {
	if ch == nil {
		return nil, errNoChannel
	}
	return ch, ch.hold()
}

var errNoChannel = operr.Invalid("the channel is nil")

// migrate moves the ID to the channel that acquire holds. sync says that it must
// have been a SyncID. It becomes one if box is not nil.
func (id *cmID) migrate(sync bool, acquire func() (*EventChannel, error), box *inbox) error {
	if err := id.begin(opMigrate); err != nil {
		return err
	}
	id.end()
	to, err := acquire()
	if err != nil {
		return opErr(opMigrate, "", err)
	}
	left, leftBox, err := id.moveTo(sync, to, box)
	if err != nil {
		left, leftBox = to, box
	}
	left.drop()
	if leftBox != nil {
		leftBox.end(errOnChannel)
		shared.release(left)
	}
	if err != nil {
		return opErr(opMigrate, "", err)
	}
	return nil
}

// moveTo moves the ID, and returns the channel and the inbox that it had before.
func (id *cmID) moveTo(sync bool, to *EventChannel, box *inbox) (from *EventChannel, old *inbox, err error) {
	if !id.beginEvent() {
		return nil, nil, ErrClosed
	}
	from = id.ch
	id.end()
	// If a channel is the shared one, wait until an event taken from the kernel is
	// in its inbox. No other may be taken before the ID has its new inbox.
	from.handing.Lock()
	defer from.handing.Unlock()
	if box != nil && to != from {
		to.handing.Lock()
		defer to.handing.Unlock()
	}
	id.life.Lock()
	defer id.life.Unlock()
	switch {
	case id.closed || id.closing.Load():
		return nil, nil, ErrClosed
	case sync && id.inbox == nil:
		return nil, nil, errOnChannel
	case !sync && id.inbox != nil:
		return nil, nil, errOnNone
	case from == to, from != id.ch: // the second: a concurrent Migrate has moved it
		return nil, nil, ErrBusy
	case sync && id.inbox.len() > 0:
		return nil, nil, ErrBusy
	}
	if box == nil {
		id.makeOwner() // before an event arrives there
	}
	f := newFrame()
	defer f.release()
	_, address := out[uapi.RdmaUcmMigrateResp](f, 0)
	var failed error
	err = from.raw.Control(func(fd uintptr) {
		*in[uapi.RdmaUcmMigrateId](f) = uapi.RdmaUcmMigrateId{Response: address, Id: id.handle, Fd: uint32(fd)}
		failed = to.run(uapi.RDMA_USER_CM_CMD_MIGRATE_ID, f)
	})
	if err != nil {
		return nil, nil, ErrClosed
	}
	if failed != nil {
		return nil, nil, failed
	}
	id.mu.Lock()
	old = id.inbox
	id.ch, id.inbox = to, box
	id.mu.Unlock()
	id.endWaits(to)
	return from, old, nil
}
