package rsocket

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A device is the state that the connections on one device share: the channel of their CQs, and the goroutine
// that reads it.
type device struct {
	ctx     *verbs.Device
	channel *verbs.CompChannel
	conns   int
}

var devices = struct {
	sync.Mutex
	of map[*verbs.Device]*device
}{of: make(map[*verbs.Device]*device)}

func acquireDevice(ctx *verbs.Device) (*device, error) {
	devices.Lock()
	defer devices.Unlock()
	d := devices.of[ctx]
	if d == nil {
		channel, err := ctx.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		d = &device{ctx: ctx, channel: channel}
		devices.of[ctx] = d
		go d.serve()
	}
	d.conns++
	return d, nil
}

// release closes the channel after the last connection.
func (d *device) release() error {
	devices.Lock()
	defer devices.Unlock()
	if d.conns--; d.conns > 0 {
		return nil
	}
	delete(devices.of, d.ctx)
	return d.channel.Close()
}

// serve passes events on until the channel is closed or the device is gone. The connection manager reports a
// lost device to the connections.
func (d *device) serve() {
	for {
		cq, err := d.channel.Wait(context.Background())
		if err != nil {
			return
		}
		if c, ok := cq.Value().(*Conn); ok {
			c.event()
		}
	}
}

// A manager receives the connection manager's events for established connections. All connections share one.
type manager struct {
	channel *rdmacm.EventChannel

	// Under the lock of managers:
	users    int // connections that have the manager, or are about to
	conns    map[*rdmacm.ID]*Conn
	arriving int                  // connections that are not yet in conns
	early    map[*rdmacm.ID]error // why some arriving connections have ended
	err      error                // why the channel reports nothing more
}

// managers has the manager for new connections. The lock is held briefly, because all connections take it: a
// system call under it would make all of them wait for a processor.
var managers struct {
	sync.Mutex
	now *manager
}

// acquireManager returns the manager for a connection that arrives.
func acquireManager() (*manager, error) {
	managers.Lock()
	defer managers.Unlock()
	m := managers.now
	if m == nil {
		channel, err := rdmacm.NewEventChannel() // for the first one only
		if err != nil {
			return nil, err
		}
		m = &manager{channel: channel, conns: make(map[*rdmacm.ID]*Conn), early: make(map[*rdmacm.ID]error)}
		managers.now = m
		go m.serve()
	}
	m.users++
	m.arriving++
	return m, nil
}

// arrived records that a connection's ID is on the manager's channel. id is nil if the connection has failed
// to get one. It returns why the connection has ended, if it has.
func (m *manager) arrived(id *rdmacm.ID, c *Conn) error {
	managers.Lock()
	defer managers.Unlock()
	if id != nil {
		m.conns[id] = c
	}
	why := m.early[id]
	if m.arriving--; m.arriving == 0 {
		clear(m.early)
	}
	if why == nil {
		why = m.err
	}
	return why
}

// release closes the channel after the last connection.
func (m *manager) release(id *rdmacm.ID) error {
	managers.Lock()
	delete(m.conns, id)
	m.users--
	last := m.users == 0
	if last && managers.now == m {
		managers.now = nil
	}
	managers.Unlock()
	if !last {
		return nil
	}
	return m.channel.Close()
}

// manage makes the connection known to the manager. From then on c.id is its ID. It returns why the connection
// has ended, if it has. The caller holds mu.
func (c *Conn) manage() (gone, err error) {
	m, err := acquireManager()
	if err != nil {
		return nil, err
	}
	for {
		id, err := c.sync.Migrate(m.channel)
		if err == nil {
			if why := m.arrived(id, c); why != nil {
				gone = why
			}
			c.id, c.manager = id, m
			return gone, nil
		}
		if errors.Is(err, rdmacm.ErrBusy) { // there is an event already
			var e *rdmacm.Event
			if e, err = c.sync.Event(context.Background()); err == nil {
				if why := reason(e); why != nil {
					gone = why
				}
				continue
			}
		}
		_ = m.arrived(nil, nil)
		return nil, errors.Join(err, m.release(nil))
	}
}

// unmanage closes the connection's ID.
func (c *Conn) unmanage() error {
	return errors.Join(c.id.Close(), c.manager.release(c.id))
}

func (m *manager) serve() {
	for {
		e, err := m.channel.Event(context.Background())
		if err != nil {
			m.lose(err)
			return
		}
		why := reason(e)
		managers.Lock()
		c := m.conns[e.ID]
		if c == nil && why != nil && m.arriving > 0 {
			m.early[e.ID] = why
		}
		managers.Unlock()
		switch {
		case c == nil:
		case why != nil:
			c.peerGone(why)
		case e.Type == rdmacm.EventUnreachable || e.Type == rdmacm.EventAddrChange:
			c.networkChanged()
		}
	}
}

// reason returns why an event ends a connection, or nil if it doesn't.
func reason(e *rdmacm.Event) error {
	switch e.Type {
	case rdmacm.EventDisconnected:
		return errReset
	case rdmacm.EventDeviceRemoval:
		return lost(rdmacm.ErrDeviceRemoved)
	}
	return nil
}

// lose ends the connections, because the channel reports nothing more. One cause is a change of the
// process's credentials. The next connection opens another channel.
func (m *manager) lose(err error) {
	err = lost(err)
	managers.Lock()
	m.err = err
	if managers.now == m {
		managers.now = nil
	}
	conns := slices.Collect(maps.Values(m.conns))
	managers.Unlock()
	for _, c := range conns {
		c.peerGone(err)
	}
}
