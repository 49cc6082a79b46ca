package rsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// ListenConfig has the options of a Listener. The zero value is ready for use.
type ListenConfig struct {
	Options

	// Backlog is the maximum number of clients that wait for Accept, 1024 if it is 0. More are
	// rejected.
	Backlog int
}

// A Listener accepts connections. It is a net.Listener. Its methods are safe for concurrent use.
type Listener struct {
	id   *rdmacm.SyncID
	o    Options
	addr *net.TCPAddr

	accepting sync.Mutex // held by the one who waits
	due       deadline

	room    chan struct{} // a token for each client, until it is accepted
	ready   chan *Conn
	life    context.Context // ends with the listener; its cause is the reason
	endLife context.CancelCauseFunc
	tasks   sync.WaitGroup
}

// Listen listens on an address, as ListenConfig.Listen does with the zero ListenConfig.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// handshakeTimeout is for how long a client may take to confirm the answer. The kernels repeat their
// messages for about as long.
const handshakeTimeout = time.Minute

// Listen listens on an address, "host:port", for connections of this package and of librdmacm's
// rsockets. Without a host it listens on all addresses, of IPv4 only if all devices are for iWARP.
// Port 0 stands for any free port: see Listener.Addr. The context is used to look up names only.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (*Listener, error) {
	infos, err := lookup(ctx, network, address, rdmacm.Hints{Passive: true})
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: opNet, Err: err}
	}
	var first error
	for i := range infos {
		info := infos[i]
		if infos[0].Src.Addr().IsUnspecified() && len(infos) > 1 {
			// Where the kernel has IPv6, its unspecified address includes IPv4's.
			info = infos[len(infos)-1-i]
		}
		l, err := lc.listen(info)
		if err == nil {
			return l, nil
		}
		if first == nil {
			first = &net.OpError{Op: "listen", Net: opNet, Addr: tcpAddr(info.Src), Err: err}
		}
	}
	return nil, first
}

func (lc *ListenConfig) listen(info rdmacm.AddrInfo) (*Listener, error) {
	id, err := rdmacm.CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	backlog := lc.Backlog
	if backlog == 0 {
		backlog = 1024
	}
	if err = id.Bind(info.Src); err == nil {
		err = id.Listen(backlog)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	l := &Listener{id: id, o: lc.Options, addr: tcpAddr(id.LocalAddr()), room: make(chan struct{}, backlog), ready: make(chan *Conn)}
	l.due.init()
	l.life, l.endLife = context.WithCancelCause(context.Background())
	l.tasks.Go(l.serve)
	return l, nil
}

// Addr returns the listener's address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline sets the deadline of Accept. A zero t stands for none.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.life.Err() != nil {
		return l.opErr("set", context.Cause(l.life))
	}
	l.due.set(t)
	return nil
}

func (l *Listener) opErr(op string, err error) error {
	return &net.OpError{Op: op, Net: opNet, Addr: l.addr, Err: closedErr(err)}
}

// Accept waits for the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn is Accept that returns a *Conn.
func (l *Listener) AcceptConn() (*Conn, error) {
	l.accepting.Lock()
	defer l.accepting.Unlock()
	for {
		if l.life.Err() != nil {
			return nil, l.opErr("accept", context.Cause(l.life))
		}
		if l.due.past.Load() {
			return nil, l.opErr("accept", os.ErrDeadlineExceeded)
		}
		select {
		case c := <-l.ready:
			return c, nil
		case <-l.life.Done():
		case <-l.due.wake:
		}
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
			_ = e.SyncID.Close() // which rejects
		}
	}
}

// handshake turns a request into a connection, and waits for Accept to take it.
func (l *Listener) handshake(e *rdmacm.Event) {
	c, err := l.answer(e)
	if err != nil {
		return
	}
	select {
	case l.ready <- c:
	case <-l.life.Done():
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// answer accepts a request. When it fails, closing the ID rejects the client.
func (l *Listener) answer(e *rdmacm.Event) (*Conn, error) {
	id := e.SyncID
	d, err := parseConnData(e.PrivateData())
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	c, err := newConn(id, l.o)
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	c.meet(&d)
	ctx, cancel := context.WithTimeout(l.life, handshakeTimeout)
	defer cancel()
	c.hush = c.iwarp != nil
	if err = id.Accept(ctx, c.param()); err == nil {
		err = c.establish()
	}
	if err != nil {
		return nil, errors.Join(err, c.release(), id.Close())
	}
	return c, nil
}

// Close stops listening. It ends connections that Accept has not returned. Those that it has
// returned are unaffected.
func (l *Listener) Close() error {
	if l.life.Err() != nil {
		return l.opErr("close", context.Cause(l.life))
	}
	l.endLife(net.ErrClosed)
	l.tasks.Wait()
	return l.id.Close()
}
