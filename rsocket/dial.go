package rsocket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// A Dialer connects to addresses. The zero value is ready for use.
type Dialer struct {
	Options

	// Timeout bounds the time that a Dial takes. There is no bound but the context's if it is 0.
	// The connection manager gives up after about a minute.
	Timeout time.Duration

	// LocalAddr is the address to connect from. If it is not valid, the routing table decides.
	LocalAddr netip.AddrPort
}

// Dial connects to an address, as Dialer.Dial does with the zero Dialer.
func Dial(network, address string) (net.Conn, error) { return new(Dialer).Dial(network, address) }

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// resolveTimeout is for how long the kernel waits for a neighbour, and for a path.
const resolveTimeout = 10 * time.Second

// DialContext connects to an address, "host:port", at which a program listens with this package or
// with librdmacm's rsockets. The network is "tcp", "tcp4" or "tcp6". The net.Conn is a *Conn. If a name
// has several addresses, DialContext tries them in turn.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	infos, err := lookup(ctx, network, address, rdmacm.Hints{Src: d.LocalAddr})
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: opNet, Err: err}
	}
	var first error
	for _, info := range infos {
		c, err := d.dial(ctx, info)
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

func (d *Dialer) dial(ctx context.Context, info rdmacm.AddrInfo) (*Conn, error) {
	id, err := rdmacm.CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	if err = id.ResolveAddr(ctx, info.Src, info.Dst, resolveTimeout); err == nil {
		err = id.ResolveRoute(ctx, resolveTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	c, err := newConn(id, d.Options)
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	e, err := id.Connect(ctx, c.param())
	var said connData
	if err == nil {
		said, err = parseConnData(e.PrivateData())
	}
	if err == nil {
		c.meet(&said)
		err = c.establish()
	}
	if err != nil {
		return nil, errors.Join(err, c.release(), id.Close())
	}
	return c, nil
}
