package rdmacm

import (
	"context"
	"errors"
)

const opDial = "dial"

// Dial connects to an address, "host:port": network is "tcp" for the TCP port
// space or "ib" for that of InfiniBand, with a 4 or a 6 behind it for one
// family of addresses. If a name has several addresses, they are tried in turn.
//
// Until it returns, the context can call the connection off.
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
	infos, err := GetAddrInfo(ctx, node, service, Hints{Family: family, PortSpace: ps, Src: options.LocalAddr})
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
	id, err := CreateID(info.PortSpace)
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

// reach finds the way to the peer.
func (id *ID) reach(ctx context.Context, info AddrInfo, o *Options) error {
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
