package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"
)

// A Listener turns clients' requests into connections as they arrive, and keeps
// these until Accept takes them. Its methods are safe for concurrent use.
type Listener struct {
	id      *SyncID
	options Options

	room    chan struct{} // a token for each client, until it is accepted
	ready   chan *Conn
	life    context.Context // ends with the listener; its cause is the reason
	endLife context.CancelCauseFunc
	tasks   sync.WaitGroup
}

// Listen listens on an address, "host:port". Dial describes the networks. Without
// a host it listens on all addresses, of IPv4 and IPv6 if the network is for
// both, of IPv4 only if all devices are for iWARP. Port 0 stands for any free
// port: see Addr. The context is used to look up names only.
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
	infos, err := Lookup(ctx, node, service, Hints{Passive: true, Family: family, PortSpace: ps})
	if err != nil {
		return nil, err
	}
	if node == "" && len(infos) > 1 {
		// Where the kernel has IPv6, its unspecified address includes IPv4's.
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
	id, err := CreateSyncID(info.PortSpace)
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

// Addr returns the listener's address, an Addr.
func (l *Listener) Addr() net.Addr { return Addr{l.id.ps, l.id.LocalAddr()} }

// ID returns the listener's ID.
func (l *Listener) ID() *SyncID { return l.id }

// Accept waits for the next connection. A client that leaves before its
// connection is established is ignored.
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
			e.SyncID.Close()
		}
	}
}

// handshake turns a request into a connection, and waits for Accept to take it.
func (l *Listener) handshake(e *Event) {
	ctx, cancel := context.WithTimeout(l.life, l.options.HandshakeTimeout)
	defer cancel()
	param, ok := l.decide(ctx, e)
	if !ok {
		e.SyncID.Close()
		return
	}
	c, err := newConn(e.SyncID, &l.options)
	if err != nil {
		return
	}
	c.peer = e.Conn
	if err := c.id.Accept(ctx, param); err != nil {
		c.release()
		return
	}
	// Even if the client has disconnected by now: it may have sent something.
	select {
	case l.ready <- c:
	case <-l.life.Done():
		c.Close()
	}
}

// decide returns the parameters for the answer, and whether to accept.
func (l *Listener) decide(ctx context.Context, e *Event) (*ConnParam, bool) {
	if l.options.Decide == nil {
		return l.options.Param, true
	}
	param, err := l.options.Decide(ctx, Request{RemoteAddr: Addr{e.SyncID.ps, e.SyncID.RemoteAddr()}, Peer: e.Conn})
	if err == nil {
		return param, true
	}
	var rejection *Rejection
	if errors.As(err, &rejection) {
		e.SyncID.Reject(rejection.PrivateData)
	}
	return nil, false
}

// Close stops listening. It ends connections that Accept has not returned.
// Connections that it has returned are unaffected. Closing a closed Listener, or a
// nil one, does nothing.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	l.endLife(ErrClosed)
	l.tasks.Wait()
	return l.id.Close()
}

// A Request is a client's connection request: see Options.Decide.
type Request struct {
	RemoteAddr Addr      // of who asks for the connection
	Peer       ConnParam // what the client sent, including its private data
}

// A Rejection is an error for Options.Decide to return. It rejects a client with
// private data that says why.
type Rejection struct {
	PrivateData []byte // at most MaxRejectData bytes
}

func (r *Rejection) Error() string { return "connection was rejected" }
