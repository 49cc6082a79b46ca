package rsocket

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

// DialContext connects to an address, "host:port", at which a program listens with this package or with
// librdmacm's rsockets. The network is "tcp", "tcp4" or "tcp6". The net.Conn is a *Conn. If a name has
// several addresses, DialContext tries them in turn. If there is a time limit, each address has an equal
// share of the time left. The Timeout method of the error reports whether time has run out.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.DialConn(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// DialConn is DialContext that returns a *Conn.
func (d *Dialer) DialConn(ctx context.Context, network, address string) (*Conn, error) {
	return netconn.Dial(ctx, d.core(), network, address, d.handshake)
}

func (d *Dialer) core() *netconn.Dialer {
	return &netconn.Dialer{Net: opNet, Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, Resolver: d.Resolver, Control: d.Control}
}

// handshake connects an ID that has a route.
func (d *Dialer) handshake(ctx context.Context, id *rdmacm.SyncID) (*Conn, error) {
	c, err := newConn(id, d.Options)
	if err != nil {
		return nil, err
	}
	if err := c.handshake(ctx); err != nil {
		_ = c.link.Release()
		return nil, err
	}
	return c, nil
}

// handshake is the client's part of the handshake.
func (c *Conn) handshake(ctx context.Context) error {
	e, err := c.link.Sync.Connect(ctx, c.param())
	if err != nil {
		return err
	}
	peer, err := parseConnData(e.PrivateData())
	if err != nil {
		return err
	}
	c.setPeer(&peer)
	return c.link.Establish(c.o.KeepAlive, nil)
}
