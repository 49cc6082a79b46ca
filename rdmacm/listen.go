package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// A Listener turns clients' requests into connections as they arrive, and keeps the
// connections until Accept takes them. Its methods are safe for concurrent use.
type Listener struct {
	id        *SyncID
	transport *Transport
	options   Options

	room    chan struct{} // a token for each client, until it is accepted
	ready   chan *Conn
	life    context.Context // ends with the listener; its cause is the reason
	endLife context.CancelCauseFunc
	tasks   sync.WaitGroup

	mu      sync.Mutex
	clients []*client // the oldest first
}

// Listen listens on an address, "host:port". Dial describes the networks. Without a host it
// listens on all addresses: IPv4 and IPv6 if the network is for both, but only IPv4 if all
// devices are for iWARP. Port 0 stands for any free port: see Addr. The context is used to
// look up names only.
func Listen(ctx context.Context, network, address string, o *Options) (*Listener, error) {
	return new(Transport).Listen(ctx, network, address, o)
}

// Listen is the function Listen, for connections that share the Transport's objects.
func (t *Transport) Listen(ctx context.Context, network, address string, o *Options) (*Listener, error) {
	const op = "listen"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	options, err := o.complete(op)
	if err != nil {
		return nil, err
	}
	if err := t.check(op, &options); err != nil {
		return nil, err
	}
	infos, err := lookup(ctx, op, network, address, Hints{Passive: true})
	if err != nil {
		return nil, err
	}
	if len(infos) > 1 && infos[0].Src.Addr().IsUnspecified() {
		// Where the kernel has IPv6, its unspecified address includes IPv4's.
		infos[0], infos[1] = infos[1], infos[0]
	}
	var first error
	for _, info := range infos {
		l, err := t.listen(info, options)
		if err == nil {
			return l, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func (t *Transport) listen(info AddrInfo, o Options) (*Listener, error) {
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
		return nil, join(err, id.Close())
	}
	l := &Listener{id: id, transport: t, options: o, room: make(chan struct{}, id.backlog), ready: make(chan *Conn)}
	l.life, l.endLife = context.WithCancelCause(context.Background())
	l.tasks.Go(l.serve)
	return l, nil
}

// Addr returns the listener's address, an Addr.
func (l *Listener) Addr() net.Addr { return Addr{l.id.ps, l.id.LocalAddr()} }

// ID returns the listener's ID.
func (l *Listener) ID() *SyncID { return l.id }

// Accept waits for the next connection. A client that leaves before its
// connection is established is ignored: see Options.Refused. Accept fails only if its context
// ends, or after the Listener has ended: by Close, because its device was removed, because
// its address moved to another device, or because the kernel's connection manager was lost.
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

// A client is a connecting or connected client that Accept has not returned yet.
type client struct {
	request Request
	event   *Event
	evict   context.CancelFunc
	conn    *Conn     // once there is one; under the Listener's mu
	owes    time.Time // if not zero, its confirmation has been missing since then; under the Listener's mu
}

// grace is how long a client may owe its confirmation without being evicted: much longer than a
// message takes to the client and back.
const grace = time.Second

// halfOpen reports whether a client's confirmation is overdue.
func (c *client) halfOpen() bool {
	return !c.owes.IsZero() && time.Since(c.owes) > grace && c.conn.id.inbox.len() == 0
}

// hasLeft reports whether a client has confirmed, and left since then.
func (c *client) hasLeft() bool { return c.conn != nil && c.owes.IsZero() && c.conn.life.Err() != nil }

// errRoom and errEvicted are reasons for Options.Refused.
var (
	errRoom    = errors.New("there are as many clients as Options.Backlog allows")
	errEvicted = fmt.Errorf("%w, and this client was evicted for another", errRoom)
)

// serve answers requests until the listener ends.
func (l *Listener) serve() {
	for {
		e, err := l.id.request(l.life)
		if e != nil && e.client.IsValid() {
			l.refused(Request{RemoteAddr: Addr{l.id.ps, e.client}, Peer: e.Conn}, err)
			continue
		}
		if err != nil {
			l.endLife(err)
			return
		}
		c := &client{event: e, request: Request{RemoteAddr: Addr{e.SyncID.ps, e.SyncID.RemoteAddr()}, Peer: e.Conn}}
		if !l.admit() {
			e.SyncID.Close()
			l.refused(c.request, errRoom)
			continue
		}
		ctx, evict := context.WithCancel(l.life)
		c.evict = evict
		l.mu.Lock()
		l.clients = append(l.clients, c)
		l.mu.Unlock()
		l.tasks.Go(func() {
			defer evict()
			err := l.handshake(ctx, c)
			l.leave(c)
			if err != nil {
				l.refused(c.request, err)
			}
			<-l.room
		})
	}
}

// admit takes a place for a client. If there is none, it evicts a client that is unlikely to be
// missed.
func (l *Listener) admit() bool {
	select {
	case l.room <- struct{}{}:
		return true
	default:
	}
	if !l.evictOne() {
		return false
	}
	select {
	case l.room <- struct{}{}:
		return true
	case <-l.life.Done():
		return false
	}
}

// evictOne evicts the first client that is half open or, if there is none, the first that has
// left.
func (l *Listener) evictOne() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.clients, (*client).halfOpen)
	if i < 0 {
		i = slices.IndexFunc(l.clients, (*client).hasLeft)
	}
	if i < 0 {
		return false
	}
	l.clients[i].evict()
	l.clients = slices.Delete(l.clients, i, i+1)
	return true
}

// leave forgets a client.
func (l *Listener) leave(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = slices.DeleteFunc(l.clients, func(other *client) bool { return other == c })
}

func (l *Listener) refused(r Request, err error) {
	if l.options.Refused != nil && l.life.Err() == nil {
		l.options.Refused(r, err)
	}
}

// handshake turns a request into a connection, and waits for Accept to take it. The context ends
// when the client is evicted.
func (l *Listener) handshake(ctx context.Context, c *client) error {
	id := c.event.SyncID
	inTime, cancel := context.WithTimeout(ctx, l.options.HandshakeTimeout)
	defer cancel()
	param, err := l.decide(inTime, c)
	if err != nil {
		return join(err, id.Close())
	}
	conn, param, err := newConn(id, l.transport, &l.options, param)
	if err != nil {
		return err
	}
	conn.peer = c.event.Conn
	l.mu.Lock()
	c.conn, c.owes = conn, time.Now()
	l.mu.Unlock()
	err = conn.id.Accept(inTime, param)
	l.mu.Lock()
	c.owes = time.Time{}
	l.mu.Unlock()
	if err != nil {
		err = join(err, closeInTime(closeFunc(conn.release)))
	} else {
		// Even if the client has disconnected by now: it may have sent something.
		select {
		case l.ready <- conn:
			return nil
		case <-ctx.Done():
			err = closeInTime(conn)
		}
	}
	if ctx.Err() != nil {
		return errEvicted
	}
	return err
}

// decide returns the parameters for the answer, or an error if the client is not accepted.
func (l *Listener) decide(ctx context.Context, c *client) (*ConnParam, error) {
	if l.options.Decide == nil {
		return l.options.Param, nil
	}
	param, err := l.options.Decide(ctx, c.request)
	var rejection *Rejection
	if errors.As(err, &rejection) {
		if failed := c.event.SyncID.Reject(rejection.PrivateData); failed != nil {
			err = errors.Join(err, failed) // the client is rejected without the data
		}
	}
	return param, err
}

// Close stops listening. It ends connections that Accept has not returned. Connections that
// Accept has returned are unaffected. Close waits for the Options' functions that are
// running, so they must not call it. Closing a closed Listener, or a nil one, does nothing.
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
	RemoteAddr Addr      // of the client
	Peer       ConnParam // what the client sent, including its private data
}

// A Rejection is an error for Options.Decide to return. It rejects a client with
// private data that says why.
type Rejection struct {
	PrivateData []byte // at most MaxRejectData bytes
}

func (r *Rejection) Error() string { return "connection was rejected" }
