package netconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A Device is the state that the connections on one device share: the channel of their CQs, and the goroutine
// that reads it. Each CQ has a func() as its value, which is called for its events.
type Device struct {
	ctx     *verbs.Device
	channel *verbs.CompChannel
	conns   int
}

var devices = struct {
	sync.Mutex
	of map[*verbs.Device]*Device
}{of: make(map[*verbs.Device]*Device)}

// AcquireDevice returns the state for a connection on the device.
func AcquireDevice(ctx *verbs.Device) (*Device, error) {
	devices.Lock()
	defer devices.Unlock()
	d := devices.of[ctx]
	if d == nil {
		channel, err := ctx.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		d = &Device{ctx: ctx, channel: channel}
		devices.of[ctx] = d
		go d.serve()
	}
	d.conns++
	return d, nil
}

// Channel returns the channel for the connections' CQs.
func (d *Device) Channel() *verbs.CompChannel { return d.channel }

// Release closes the channel after the last connection. It does nothing for a nil Device.
func (d *Device) Release() error {
	if d == nil {
		return nil
	}
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
func (d *Device) serve() {
	for {
		cq, err := d.channel.Wait(context.Background())
		if err != nil {
			return
		}
		if event, ok := cq.Value().(func()); ok {
			event()
		}
	}
}

// Reports are what the connection manager reports about a connection.
type Reports struct {
	Gone    func(error) // the connection has ended
	Changed func()      // the network has changed, and the connection may have ended
}

// A Manager receives the connection manager's events for established connections. All connections share one.
type Manager struct {
	channel *rdmacm.EventChannel

	// The lock of managers protects these fields.
	users    int // connections that have the manager, or are about to
	conns    map[*rdmacm.ID]Reports
	arriving int                  // connections that are not yet in conns
	early    map[*rdmacm.ID]error // why some arriving connections have ended
	err      error                // why the channel reports nothing more
}

// managers has the manager for new connections. The lock is held briefly, because all connections take it: a
// system call under it would make all of them wait for a processor.
var managers struct {
	sync.Mutex
	now *Manager
}

// acquireManager returns the manager for a connection that arrives.
func acquireManager() (*Manager, error) {
	managers.Lock()
	defer managers.Unlock()
	m := managers.now
	if m == nil {
		channel, err := rdmacm.NewEventChannel() // for the first one only
		if err != nil {
			return nil, err
		}
		m = &Manager{channel: channel, conns: make(map[*rdmacm.ID]Reports), early: make(map[*rdmacm.ID]error)}
		managers.now = m
		go m.serve()
	}
	m.users++
	m.arriving++
	return m, nil
}

// arrived records that a connection's ID is on the manager's channel. id is nil if the connection has failed
// to get one. It returns why the connection has ended, if it has.
func (m *Manager) arrived(id *rdmacm.ID, r Reports) error {
	managers.Lock()
	defer managers.Unlock()
	if id != nil {
		m.conns[id] = r
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
func (m *Manager) release(id *rdmacm.ID) error {
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

// Manage gives an established connection to the manager. From then on the returned ID is the connection's. gone
// says why the connection has ended, if it has.
func Manage(sync *rdmacm.SyncID, r Reports) (id *rdmacm.ID, m *Manager, gone, err error) {
	m, err = acquireManager()
	if err != nil {
		return nil, nil, nil, err
	}
	for {
		id, err := sync.Migrate(m.channel)
		if err == nil {
			if why := m.arrived(id, r); why != nil {
				gone = why
			}
			return id, m, gone, nil
		}
		if errors.Is(err, rdmacm.ErrBusy) { // there is an event already
			var e *rdmacm.Event
			if e, err = sync.Event(context.Background()); err == nil {
				if why := reason(e); why != nil {
					gone = why
				}
				continue
			}
		}
		_ = m.arrived(nil, Reports{})
		return nil, nil, nil, errors.Join(err, m.release(nil))
	}
}

// Close closes the connection's ID.
func (m *Manager) Close(id *rdmacm.ID) error {
	return errors.Join(id.Close(), m.release(id))
}

func (m *Manager) serve() {
	for {
		e, err := m.channel.Event(context.Background())
		if err != nil {
			m.lose(err)
			return
		}
		why := reason(e)
		managers.Lock()
		r, known := m.conns[e.ID]
		if !known && why != nil && m.arriving > 0 {
			m.early[e.ID] = why
		}
		managers.Unlock()
		switch {
		case !known:
		case why != nil:
			r.Gone(why)
		case e.Type == rdmacm.EventUnreachable || e.Type == rdmacm.EventAddrChange:
			r.Changed()
		}
	}
}

// reason returns why an event ends a connection, or nil if it doesn't.
func reason(e *rdmacm.Event) error {
	switch e.Type {
	case rdmacm.EventDisconnected:
		return ErrReset
	case rdmacm.EventDeviceRemoval:
		return Lost(rdmacm.ErrDeviceRemoved)
	}
	return nil
}

// lose ends the connections, because the channel reports nothing more. One cause is a change of the
// process's credentials. The next connection opens another channel.
func (m *Manager) lose(err error) {
	err = Lost(err)
	managers.Lock()
	m.err = err
	if managers.now == m {
		managers.now = nil
	}
	conns := slices.Collect(maps.Values(m.conns))
	managers.Unlock()
	for _, r := range conns {
		r.Gone(err)
	}
}

// Held lists what the connections of the process share, for tests.
func Held() (all []string) {
	devices.Lock()
	for _, d := range devices.of {
		all = append(all, fmt.Sprintf("a device with %d connections", d.conns))
	}
	devices.Unlock()
	managers.Lock()
	if m := managers.now; m != nil {
		all = append(all, fmt.Sprintf("a manager with %d users, %d connections, %d arriving", m.users, len(m.conns), m.arriving))
	}
	managers.Unlock()
	if n := len(releasing); n > 0 {
		all = append(all, fmt.Sprintf("%d connections that are being released", n))
	}
	return all
}
