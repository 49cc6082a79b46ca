package rdmacm

import (
	"context"
	"errors"
)

const opDial = "dial"

// Dial connects to an address, "host:port". The network is "tcp" for the TCP port
// space or "ib" for InfiniBand's. A suffix of 4 or 6, as in "tcp4", restricts it
// to one address family. If a name has several addresses, Dial tries them in turn.
//
// If the context ends before Dial returns, the connection is cancelled.
func Dial(ctx context.Context, network, address string, o *Options) (*Conn, error) {
	if ctx == nil {
		return nil, &OpError{Op: opDial, Err: errNoContext}
	}
	options, err := o.complete(opDial)
	if err != nil {
		return nil, err
	}
	ps, family, err := parseNetwork(network)
	if err != nil {
		return nil, opErr(opDial, "", err)
	}
	node, service, err := parseAddress(address)
	if err != nil {
		return nil, opErr(opDial, "", err)
	}
	infos, err := Lookup(ctx, node, service, Hints{Family: family, PortSpace: ps, Src: options.LocalAddr})
	if err != nil {
		return nil, err
	}
	var first error
	for _, info := range infos {
		c, err := dial(ctx, info, &options)
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

func dial(ctx context.Context, info AddrInfo, o *Options) (*Conn, error) {
	id, err := CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	if err := id.reach(ctx, info, o); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	c, err := newConn(id, o)
	if err != nil {
		return nil, err
	}
	e, err := id.Connect(ctx, o.Param)
	if err != nil {
		return nil, errors.Join(err, c.release())
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
