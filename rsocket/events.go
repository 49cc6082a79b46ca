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

// A device is what the connections on one device share: the channel on which their CQs report, and
// the goroutine that reads it.
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

// serve passes events on until the channel is closed or the device is gone. The connection manager
// reports the latter to the connections.
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

// A manager receives what the connection manager says about established connections. All
// connections share one.
type manager struct {
	channel *rdmacm.EventChannel
	conns   map[*rdmacm.ID]*Conn
}

var managers struct {
	sync.Mutex // also of the manager's conns
	now        *manager
}

// manage makes the connection known to the manager. From then on c.id is its ID. The caller holds
// mu.
func (c *Conn) manage() error {
	managers.Lock() // until the connection is known, because it may end at once
	defer managers.Unlock()
	m := managers.now
	if m == nil {
		channel, err := rdmacm.NewEventChannel()
		if err != nil {
			return err
		}
		m = &manager{channel: channel, conns: make(map[*rdmacm.ID]*Conn)}
		managers.now = m
		go m.serve()
	}
	for {
		id, err := c.sync.Migrate(m.channel)
		switch {
		case err == nil:
			m.conns[id] = c
			c.id, c.manager = id, m
			return nil
		case !errors.Is(err, rdmacm.ErrBusy):
			return errors.Join(err, m.close())
		}
		// There is an event already.
		e, err := c.sync.Event(context.Background())
		if err != nil {
			return errors.Join(err, m.close())
		}
		if why := reason(e); why != nil {
			c.err = why
		}
	}
}

// unmanage closes the connection's ID.
func (c *Conn) unmanage() error {
	managers.Lock()
	delete(c.manager.conns, c.id)
	managers.Unlock()
	err := c.id.Close()
	managers.Lock()
	defer managers.Unlock()
	return errors.Join(err, c.manager.close())
}

// close closes the channel after the last connection.
func (m *manager) close() error {
	if len(m.conns) > 0 {
		return nil
	}
	err := m.channel.Close()
	if errors.Is(err, rdmacm.ErrBusy) { // a connection that has left is about to close its ID
		return nil
	}
	if managers.now == m {
		managers.now = nil
	}
	return err
}

func (m *manager) serve() {
	for {
		e, err := m.channel.Event(context.Background())
		if err != nil {
			m.lose(err)
			return
		}
		managers.Lock()
		c := m.conns[e.ID]
		managers.Unlock()
		if why := reason(e); c != nil && why != nil {
			c.peerGone(why)
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
	managers.Lock()
	if managers.now == m {
		managers.now = nil
	}
	conns := slices.Collect(maps.Values(m.conns))
	managers.Unlock()
	for _, c := range conns {
		c.peerGone(lost(err))
	}
}
