package rdmacm

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A reader reads the events of the CQs of all Conns with messages on a Device. The first Conn
// starts it, and the last one ends it.
type reader struct {
	dev     *verbs.Device
	channel *verbs.CompChannel
	members map[*messages]bool // under the readers' lock
}

var readers = struct {
	sync.Mutex
	of map[*verbs.Device]*reader
}{of: make(map[*verbs.Device]*reader)}

// joinReader returns the Device's reader, with one more member. The member's CQs must be on the
// reader's channel, and the Value of each must be its completions.
func joinReader(dev *verbs.Device, m *messages) (*reader, error) {
	readers.Lock()
	defer readers.Unlock()
	r := readers.of[dev]
	if r == nil {
		channel, err := dev.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		r = &reader{dev: dev, channel: channel, members: make(map[*messages]bool)}
		readers.of[dev] = r
		go r.read()
	}
	r.members[m] = true
	return r, nil
}

// read passes each event to its CQ's completions, until the channel is closed or its device is gone.
func (r *reader) read() {
	for {
		cq, err := r.channel.Wait(context.Background())
		if err != nil {
			r.end(err)
			return
		}
		cq.Value().(*completions).event()
	}
}

// end ends the members' connections.
func (r *reader) end(err error) {
	readers.Lock()
	defer readers.Unlock()
	if readers.of[r.dev] == r {
		delete(readers.of, r.dev)
	}
	for m := range r.members {
		m.fail(err)
	}
}

// leave removes a member, whose CQs must be closed.
func (r *reader) leave(m *messages) error {
	readers.Lock()
	defer readers.Unlock()
	delete(r.members, m)
	if len(r.members) > 0 {
		return nil
	}
	if readers.of[r.dev] == r {
		delete(readers.of, r.dev)
	}
	return r.channel.Close()
}
