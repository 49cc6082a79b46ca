package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
)

// A Listener makes connections of clients' requests as they come, and keeps them
// until they are accepted. Its methods are safe for concurrent use.
type Listener struct {
	id      *ID
	options Options

	room    chan struct{} // a token for each client, until it is accepted
	ready   chan *Conn
	life    context.Context // ends with the listener, for a reason
	endLife context.CancelCauseFunc
	tasks   sync.WaitGroup
}

// Listen listens on an address, "host:port", for network see Dial. Without a
// host it listens on any address, IPv4 and IPv6 alike if the network is for
// both. Port 0 is any free one: see Addr. The context is for looking up a name.
func Listen(ctx context.Context, network, address string, o *Options) (*Listener, error) {
	const op = "listen"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	options, err := o.complete(op)
	if err != nil {
		return nil, err
	}
	ps, family, err := parseNetwork(network)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	node, service, err := parseAddress(address)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	infos, err := GetAddrInfo(ctx, node, service, Hints{Passive: true, Family: family, PortSpace: ps})
	if err != nil {
		return nil, err
	}
	if node == "" && family == "ip" {
		// IPv6's any address has IPv4's, too, where the kernel has IPv6.
		infos[0], infos[1] = infos[1], infos[0]
	}
	var first error
	for _, info := range infos {
		l, err := listen(info, options)
		if err == nil {
			return l, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func listen(info AddrInfo, o Options) (*Listener, error) {
	id, err := CreateID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	if o.Control != nil {
		err = o.Control(id)
	}
	if err == nil {
		err = id.Bind(info.Src)
	}
	if err == nil {
		err = id.Listen(o.Backlog)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	l := &Listener{id: id, options: o, room: make(chan struct{}, id.backlog), ready: make(chan *Conn)}
	l.life, l.endLife = context.WithCancelCause(context.Background())
	l.tasks.Go(l.serve)
	return l, nil
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// ID returns the listener's ID.
func (l *Listener) ID() *ID { return l.id }

// Accept waits for the next connection. A client that goes away before its
// connection stands is forgotten.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	const op = "accept"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.life.Done():
		return nil, opErr(op, "", context.Cause(l.life))
	case <-ctx.Done():
		return nil, opErr(op, "", ctx.Err())
	}
}

// serve answers requests until the listener ends.
func (l *Listener) serve() {
	for {
		e, err := l.id.Request(l.life)
		if err != nil {
			l.endLife(err)
			return
		}
		select {
		case l.room <- struct{}{}:
			l.tasks.Go(func() {
				l.handshake(e)
				<-l.room
			})
		default:
			e.ID.Close()
		}
	}
}

// handshake makes a connection of a request and waits for someone to accept it.
func (l *Listener) handshake(e *Event) {
	ctx, cancel := context.WithTimeout(l.life, l.options.HandshakeTimeout)
	defer cancel()
	param, ok := l.decide(ctx, e)
	if !ok {
		e.ID.Close()
		return
	}
	c, err := newConn(e.ID, &l.options)
	if err != nil {
		return
	}
	c.peer = e.Conn
	if err := c.id.Accept(ctx, param); err != nil {
		c.release()
		return
	}
	// Even one that the client has left by now: it may have sent something.
	select {
	case l.ready <- c:
	case <-l.life.Done():
		c.Close()
	}
}

// decide says how to answer a client, and whether to.
func (l *Listener) decide(ctx context.Context, e *Event) (*ConnParam, bool) {
	if l.options.Decide == nil {
		return l.options.Param, true
	}
	param, err := l.options.Decide(ctx, Request{RemoteAddr: e.ID.RemoteAddr(), Peer: e.Conn})
	if err == nil {
		return param, true
	}
	var rejection *Rejection
	if errors.As(err, &rejection) {
		e.ID.Reject(rejection.PrivateData)
	}
	return nil, false
}

// Close stops listening. Clients whose connections nobody has accepted are
// turned away; connections that were accepted stay.
func (l *Listener) Close() error {
	l.endLife(ErrClosed)
	l.tasks.Wait()
	return l.id.Close()
}

// A Request is a client's wish to connect: see Options.Decide.
type Request struct {
	RemoteAddr netip.AddrPort
	Peer       ConnParam // what the client sent: the private data among it
}

// A Rejection is the error with which Options.Decide turns a client away, and
// tells it why.
type Rejection struct {
	PrivateData []byte // at most MaxRejectData bytes
}

func (r *Rejection) Error() string { return "connection was rejected" }
