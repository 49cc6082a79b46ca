package valkeyrdma

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/rdmacm"
)

// A Dialer connects to addresses. The zero value is ready for use.
type Dialer struct {
	Options

	// Timeout bounds the time that a Dial takes. If a name has several addresses, they share it. If it is 0,
	// only the context and Deadline bound the time. The connection manager gives up after about a minute.
	Timeout time.Duration

	// Deadline is when a Dial fails at the latest, if it is not zero.
	Deadline time.Time

	// LocalAddr is the address to connect from. If it is not valid, the routing table decides.
	LocalAddr netip.AddrPort

	// Resolver looks names up; nil stands for net.DefaultResolver.
	Resolver *net.Resolver

	// Control, if not nil, is called with each ID before it is used to connect. It can set the ID's options.
	Control func(*rdmacm.SyncID) error
}

// Dial connects to an address, as Dialer.Dial does with the zero Dialer.
func Dial(network, address string) (net.Conn, error) { return new(Dialer).Dial(network, address) }

// Dial is like DialContext, but takes no context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, "host:port", at which a Valkey server or a Listener listens. The network is "tcp",
// "tcp4" or "tcp6". The net.Conn is a *Conn. If a name has several addresses, DialContext tries them in turn. If there
// is a time limit, each address has an equal share of the time left. The Timeout method of the error reports whether
// time has run out.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	core := &netconn.Dialer{Net: opNet, Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, Resolver: d.Resolver, Control: d.Control}
	c, err := netconn.Dial(ctx, core, network, address, d.handshake)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// handshake connects an ID that has a route.
func (d *Dialer) handshake(ctx context.Context, id *rdmacm.SyncID) (*Conn, error) {
	c, err := newConn(id, d.Options)
	if err != nil {
		return nil, err
	}
	c.window = receives / 2
	if _, err = id.Connect(ctx, param()); err == nil {
		err = c.establish()
	}
	if err != nil {
		_ = c.link.Release()
		return nil, err
	}
	return c, nil
}

// param returns the parameters for the peer, as Valkey's programs give them.
func param() *rdmacm.ConnParam { return &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1} }
