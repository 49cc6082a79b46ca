package rdmacm

import (
	"context"
	"time"
)

const opDial = "dial"

// Dial connects to an address, "host:port". The network is "tcp" for the TCP port
// space or "ib" for InfiniBand's. A suffix of 4 or 6, as in "tcp4", restricts it
// to one address family. If a name has several addresses, Dial tries them in turn.
//
// The addresses share the time until the context's deadline, as those of net.Dialer do.
//
// If the context ends before Dial returns, the connection is cancelled. Over iWARP the
// kernel keeps its objects until the server has answered.
func Dial(ctx context.Context, network, address string, o *Options) (*Conn, error) {
	return new(Transport).Dial(ctx, network, address, o)
}

// Dial is the function Dial, for a connection that shares the Transport's objects.
func (t *Transport) Dial(ctx context.Context, network, address string, o *Options) (*Conn, error) {
	if ctx == nil {
		return nil, &OpError{Op: opDial, Err: errNoContext}
	}
	options, err := o.complete(opDial)
	if err != nil {
		return nil, err
	}
	if err := t.check(opDial, &options); err != nil {
		return nil, err
	}
	infos, err := lookup(ctx, opDial, network, address, Hints{Src: options.LocalAddr})
	if err != nil {
		return nil, err
	}
	var first error
	for i, info := range infos {
		c, err := t.dialInTime(ctx, info, &options, len(infos)-i)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// minDial is the least time for an address, unless less is left.
const minDial = 2 * time.Second

// dialInTime dials the first of several addresses. It leaves time for the others, since this one may
// not answer.
func (t *Transport) dialInTime(ctx context.Context, info AddrInfo, o *Options, addrs int) (*Conn, error) {
	if end, ok := ctx.Deadline(); ok && addrs > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(time.Until(end)/time.Duration(addrs), minDial))
		defer cancel()
	}
	return t.dial(ctx, info, o)
}

func (t *Transport) dial(ctx context.Context, info AddrInfo, o *Options) (*Conn, error) {
	id, err := CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	if err := id.reach(ctx, info, o); err != nil {
		return nil, join(err, id.Close())
	}
	c, param, err := newConn(id, t, o, o.Param)
	if err != nil {
		return nil, err
	}
	e, err := id.Connect(ctx, param)
	switch {
	case err == nil:
	case c.iwarp && ctx.Err() != nil:
		// The kernel doesn't destroy the ID before the server has answered.
		go func() {
			c.use.Lock()
			defer c.use.Unlock()
			closeInTime(closeFunc(c.release))
		}()
		return nil, err
	default:
		return nil, join(err, closeInTime(closeFunc(c.release)))
	}
	c.peer = e.Conn
	return c, nil
}

// reach resolves the peer's address and the route to it.
func (id *SyncID) reach(ctx context.Context, info AddrInfo, o *Options) error {
	if o.Control != nil {
		if err := o.Control(id); err != nil {
			return err
		}
	}
	if err := id.ResolveAddr(ctx, info.Src, info.Dst, o.ResolveTimeout); err != nil {
		return err
	}
	return id.ResolveRoute(ctx, o.ResolveTimeout)
}

// lookup resolves an address of a network.
func lookup(ctx context.Context, op, network, address string, h Hints) ([]AddrInfo, error) {
	var err error
	if h.PortSpace, h.Family, err = parseNetwork(network); err != nil {
		return nil, opErr(op, "", err)
	}
	node, service, err := parseAddress(address)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	return Lookup(ctx, node, service, h)
}
