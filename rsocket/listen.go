package rsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// ListenConfig has the options of a Listener. The zero value is ready for use.
type ListenConfig struct {
	Options

	// Backlog is how many clients may wait for Accept, 1024 if it is 0. More are rejected. Each has the
	// memory of a connection already. A client that leaves meanwhile, and has sent nothing, is dropped.
	Backlog int

	// Control, if not nil, is called with the listener's ID before it is bound. It can set the ID's options.
	Control func(*rdmacm.SyncID) error
}

// A Listener accepts connections. It is a net.Listener. Its methods are safe for concurrent use.
type Listener struct {
	id      *rdmacm.SyncID
	o       Options
	backlog int64
	addr    *net.TCPAddr

	accepting sync.Mutex // held by the Accept that waits
	due       deadline

	recent   chan *handshake // the handshakes that began last
	waiting  atomic.Int64    // clients that wait for Accept
	ready    chan *Conn
	failures chan error      // for Accept
	life     context.Context // ends with the listener; its cause is the reason
	endLife  context.CancelCauseFunc
	closed   atomic.Bool
	tasks    sync.WaitGroup
}

// Listen listens on an address, as ListenConfig.Listen does with the zero ListenConfig.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

const (
	// handshakeTimeout is how long a client may take to confirm the answer. The kernels repeat their messages
	// meanwhile.
	handshakeTimeout = 10 * time.Second

	// handshakes is how many clients may be between their request and their confirmation. If there are as
	// many, the next client waits until the oldest has confirmed, or is dropped because its time,
	// courtesy, is over. So clients that never confirm take little memory, and don't shut out others.
	handshakes = 64
	courtesy   = 2 * time.Second
)

// A handshake is a client's handshake that has begun.
type handshake struct {
	ctx   context.Context
	end   context.CancelFunc
	began time.Time
	done  chan struct{}
}

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
	if lc.Control != nil {
		err = lc.Control(id)
	}
	if err == nil {
		err = id.Bind(info.Src)
	}
	if err == nil {
		err = id.Listen(backlog)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	l := &Listener{
		id: id, o: lc.Options, backlog: int64(backlog), addr: tcpAddr(id.LocalAddr()),
		recent: make(chan *handshake, handshakes), ready: make(chan *Conn), failures: make(chan error, 1),
	}
	l.due.init()
	l.life, l.endLife = context.WithCancelCause(context.Background())
	l.tasks.Go(l.serve)
	return l, nil
}

// Addr returns the listener's address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline sets the deadline of Accept. A zero t stands for none.
func (l *Listener) SetDeadline(t time.Time) error {
	if err := l.ended(); err != nil {
		return l.opErr("set", err)
	}
	l.due.set(t)
	return nil
}

// ended returns why the listener has ended, or nil.
func (l *Listener) ended() error {
	if l.closed.Load() {
		return net.ErrClosed
	}
	return context.Cause(l.life)
}

func (l *Listener) opErr(op string, err error) error {
	return &net.OpError{Op: op, Net: opNet, Addr: l.addr, Err: closedErr(err)}
}

// Accept waits for the next connection, a *Conn. If this side fails to make one, for lack of memory or file
// descriptors for instance, the client is rejected, and Accept returns an error whose Temporary method
// reports true. A later Accept may succeed. Clients' failures are not reported.
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
		if err := l.ended(); err != nil {
			return nil, l.opErr("accept", err)
		}
		if l.due.past.Load() {
			return nil, l.opErr("accept", os.ErrDeadlineExceeded)
		}
		select {
		case c := <-l.ready:
			return c, nil
		case err := <-l.failures:
			return nil, l.opErr("accept", err)
		case <-l.life.Done():
		case <-l.due.wake:
		}
	}
}

// serve answers requests until the listener ends.
func (l *Listener) serve() {
	for {
		e, err := l.id.Request(l.life)
		if errors.Is(err, rdmacm.ErrConnect) { // a client that this side couldn't take
			l.report(&acceptError{err})
			continue
		}
		if err != nil {
			l.endLife(err)
			return
		}
		if l.waiting.Load() >= l.backlog {
			_ = e.SyncID.Close() // rejects the client
			continue
		}
		h := l.beginHandshake()
		l.tasks.Go(func() {
			c := l.handshake(h, e)
			close(h.done)
			h.end()
			if c != nil {
				l.offer(c)
			}
		})
	}
}

// beginHandshake makes room for a handshake.
func (l *Listener) beginHandshake() *handshake {
	if len(l.recent) == cap(l.recent) {
		oldest := <-l.recent
		timer := time.NewTimer(time.Until(oldest.began.Add(courtesy)))
		select {
		case <-oldest.done:
		case <-l.life.Done():
		case <-timer.C:
			oldest.end()
		}
		timer.Stop()
	}
	h := &handshake{began: time.Now(), done: make(chan struct{})}
	h.ctx, h.end = context.WithTimeout(l.life, handshakeTimeout)
	l.recent <- h
	return h
}

// handshake turns a request into a connection. If it fails, it returns nil, and the client is rejected.
func (l *Listener) handshake(h *handshake, e *rdmacm.Event) *Conn {
	c, err := l.answer(h.ctx, e)
	if err == nil {
		return c
	}
	_ = e.SyncID.Close()
	var own *acceptError
	if errors.As(err, &own) {
		l.report(own)
	}
	return nil
}

// report makes Accept return a failure of this side.
func (l *Listener) report(err *acceptError) {
	select {
	case l.failures <- err:
	default: // a failure is pending already
	}
}

// offer waits for Accept to take a connection.
func (l *Listener) offer(c *Conn) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	ended := c.ended
	for {
		select {
		case l.ready <- c:
			return
		case <-ended:
			if c.hasUnread() {
				ended = nil // for Accept, all the same
				continue
			}
		case <-l.life.Done():
		}
		_ = c.SetLinger(0)
		_ = c.Close()
		return
	}
}

// answer accepts a request. If it fails, the caller must close the ID.
func (l *Listener) answer(ctx context.Context, e *rdmacm.Event) (*Conn, error) {
	id := e.SyncID
	d, err := parseConnData(e.PrivateData())
	if err != nil {
		return nil, err
	}
	c, err := newConn(id, l.o)
	if err != nil {
		return nil, thisSide(err)
	}
	c.setPeer(&d)
	c.out.blocked = c.iwarp != nil
	if err = id.Accept(ctx, c.param()); err == nil {
		err = thisSide(c.establish())
	}
	if err != nil {
		_ = c.release()
		return nil, err
	}
	return c, nil
}

// thisSide marks a failure as this side's, unless the client has left.
func thisSide(err error) error {
	if err == nil || errors.Is(err, rdmacm.ErrDisconnected) {
		return err
	}
	return &acceptError{err}
}

// Close stops listening. It ends connections that Accept has not returned. Those that it has
// returned are unaffected. A Listener that has failed must be closed, too.
func (l *Listener) Close() error {
	if l == nil {
		return net.ErrClosed
	}
	if l.closed.Swap(true) {
		return l.opErr("close", net.ErrClosed)
	}
	l.endLife(net.ErrClosed)
	l.tasks.Wait()
	if err := l.id.Close(); err != nil {
		return l.opErr("close", err)
	}
	return nil
}
