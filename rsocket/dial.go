package rsocket

import (
	"context"
	"net"
	"net/netip"
	"time"

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

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

const (
	// resolveTimeout is how long the kernel waits for a neighbour, and for a path.
	resolveTimeout = 10 * time.Second
	// leastShare is the least time for an address, unless less is left.
	leastShare = 2 * time.Second
)

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
	ctx, cancel := d.limit(ctx)
	defer cancel()
	infos, err := lookup(ctx, network, address, rdmacm.Hints{Src: d.LocalAddr, Resolver: d.Resolver})
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: opNet, Err: err}
	}
	return dialEach(ctx, infos, d.dial)
}

// limit returns a context that ends with the Dialer's time.
func (d *Dialer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline := d.Deadline
	if end := time.Now().Add(d.Timeout); d.Timeout > 0 && (deadline.IsZero() || end.Before(deadline)) {
		deadline = end
	}
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// dialEach dials addresses until one answers. The error is that of the first.
func dialEach(ctx context.Context, infos []rdmacm.AddrInfo, dial func(context.Context, rdmacm.AddrInfo) (*Conn, error)) (*Conn, error) {
	var first error
	for i, info := range infos {
		part, cancel := share(ctx, len(infos)-i)
		c, err := dial(part, info)
		cancel()
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = &net.OpError{Op: "dial", Net: opNet, Addr: tcpAddr(info.Dst), Err: err}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// lookup returns the addresses behind a name.
func lookup(ctx context.Context, network, address string, h rdmacm.Hints) ([]rdmacm.AddrInfo, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
		h.Family = "ip" + network[len("tcp"):]
	default:
		return nil, net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h.PortSpace = rdmacm.PortSpaceTCP
	return rdmacm.Lookup(ctx, host, port, h)
}

// share returns a context that ends after an n-th of ctx's remaining time.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	part := max(left/time.Duration(n), leastShare)
	if part >= left {
		return context.WithCancel(ctx) // so that both end at once
	}
	return context.WithTimeout(ctx, part)
}

func (d *Dialer) dial(ctx context.Context, info rdmacm.AddrInfo) (*Conn, error) {
	id, err := rdmacm.CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	c, err := d.connect(ctx, id, info)
	if err != nil {
		_ = id.Close() // err has the reason
		return nil, err
	}
	return c, nil
}

// connect connects an ID. If it fails, the caller must close the ID.
func (d *Dialer) connect(ctx context.Context, id *rdmacm.SyncID, info rdmacm.AddrInfo) (*Conn, error) {
	if d.Control != nil {
		if err := d.Control(id); err != nil {
			return nil, err
		}
	}
	if err := id.ResolveAddr(ctx, info.Src, info.Dst, resolveTimeout); err != nil {
		return nil, err
	}
	if err := id.ResolveRoute(ctx, resolveTimeout); err != nil {
		return nil, err
	}
	c, err := newConn(id, d.Options)
	if err != nil {
		return nil, err
	}
	if err := c.handshake(ctx); err != nil {
		_ = c.release()
		return nil, err
	}
	return c, nil
}

// handshake is the client's part of the handshake.
func (c *Conn) handshake(ctx context.Context) error {
	e, err := c.sync.Connect(ctx, c.param())
	if err != nil {
		return err
	}
	peer, err := parseConnData(e.PrivateData())
	if err != nil {
		return err
	}
	c.setPeer(&peer)
	return c.establish()
}
