package netconn

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// A Dialer has what connecting needs. The public Dialers document the fields.
type Dialer struct {
	Net       string // net.OpError.Net
	Timeout   time.Duration
	Deadline  time.Time
	LocalAddr netip.AddrPort
	Resolver  *net.Resolver
	Control   func(*rdmacm.SyncID) error
}

const (
	// resolveTimeout is how long the kernel waits for a neighbour, and for a path.
	resolveTimeout = 10 * time.Second
	// leastShare is the least time for an address, unless less is left.
	leastShare = 2 * time.Second
)

// Dial looks an address up, and connects to what it stands for, in turn. handshake makes a connection on an ID
// that has a route. If handshake fails, Dial closes the ID.
func Dial[C any](ctx context.Context, d *Dialer, network, address string, handshake func(context.Context, *rdmacm.SyncID) (C, error)) (C, error) {
	var none C
	ctx, cancel := d.Limit(ctx)
	defer cancel()
	infos, err := lookup(ctx, network, address, rdmacm.Hints{Src: d.LocalAddr, Resolver: d.Resolver})
	if err != nil {
		return none, &net.OpError{Op: "dial", Net: d.Net, Err: err}
	}
	return dialEach(ctx, d.Net, infos, func(ctx context.Context, info rdmacm.AddrInfo) (C, error) {
		id, err := rdmacm.CreateSyncID(info.PortSpace)
		if err != nil {
			return none, err
		}
		err = d.route(ctx, id, info)
		if err == nil {
			var c C
			if c, err = handshake(ctx, id); err == nil {
				return c, nil
			}
		}
		_ = id.Close() // err has the reason
		return none, err
	})
}

// route finds the ID's device and its way to the peer.
func (d *Dialer) route(ctx context.Context, id *rdmacm.SyncID, info rdmacm.AddrInfo) error {
	if d.Control != nil {
		if err := d.Control(id); err != nil {
			return err
		}
	}
	if err := id.ResolveAddr(ctx, info.Src, info.Dst, resolveTimeout); err != nil {
		return err
	}
	return id.ResolveRoute(ctx, resolveTimeout)
}

// Limit returns a context that ends with the Dialer's time.
func (d *Dialer) Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline := d.Deadline
	if end := time.Now().Add(d.Timeout); d.Timeout != 0 && (deadline.IsZero() || end.Before(deadline)) {
		deadline = end
	}
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// dialEach dials addresses until one answers. The error is that of the first.
func dialEach[C any](ctx context.Context, opNet string, infos []rdmacm.AddrInfo, dial func(context.Context, rdmacm.AddrInfo) (C, error)) (C, error) {
	var first error
	for i, info := range infos {
		part, cancel := Share(ctx, len(infos)-i)
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
	var none C
	return none, first
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

// Share returns a context that ends after an n-th of ctx's remaining time.
func Share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
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

func tcpAddr(a netip.AddrPort) *net.TCPAddr { return net.TCPAddrFromAddrPort(a) }
