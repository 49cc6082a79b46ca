package netconn

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

// A ListenConfig has what a Listener of connections of type C needs.
type ListenConfig[C any] struct {
	Net     string // net.OpError.Net
	Backlog int    // how many clients may wait for Accept; 1024 if it is 0
	Control func(*rdmacm.SyncID) error

	// Answer accepts a request. If it fails, the Listener closes the request's ID, which rejects the client. Accept
	// reports the failures that ThisSide has marked.
	Answer func(context.Context, *rdmacm.Event) (C, error)
	// Ended returns the channel that is closed when the connection ends.
	Ended func(C) <-chan struct{}
	// HasUnread reports whether a connection that has ended is for Accept all the same.
	HasUnread func(C) bool
	// Drop closes a connection that Accept has not returned.
	Drop func(C)
}

// A Listener accepts connections. Its methods are safe for concurrent use.
type Listener[C any] struct {
	config ListenConfig[C]
	id     *rdmacm.SyncID
	addr   *net.TCPAddr

	accepting sync.Mutex // held by the Accept that waits
	due       Deadline

	recent   chan *handshake // the handshakes that began last
	waiting  atomic.Int64    // clients that wait for Accept
	ready    chan C
	failures chan error      // for Accept
	life     context.Context // ends with the listener; its cause is the reason
	endLife  context.CancelCauseFunc
	closed   atomic.Bool
	tasks    sync.WaitGroup
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

// Listen listens on an address, "host:port". Without a host it listens on all addresses, of IPv4 only if all
// devices are for iWARP. The context is used to look up names only.
func Listen[C any](ctx context.Context, network, address string, config ListenConfig[C]) (*Listener[C], error) {
	if config.Backlog == 0 {
		config.Backlog = 1024
	}
	infos, err := lookup(ctx, network, address, rdmacm.Hints{Passive: true})
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: config.Net, Err: err}
	}
	var first error
	for i := range infos {
		info := infos[i]
		if infos[0].Src.Addr().IsUnspecified() && len(infos) > 1 {
			// Where the kernel has IPv6, its unspecified address includes IPv4's.
			info = infos[len(infos)-1-i]
		}
		l, err := listen(info, config)
		if err == nil {
			return l, nil
		}
		if first == nil {
			first = &net.OpError{Op: "listen", Net: config.Net, Addr: tcpAddr(info.Src), Err: err}
		}
	}
	return nil, first
}

func listen[C any](info rdmacm.AddrInfo, config ListenConfig[C]) (*Listener[C], error) {
	id, err := rdmacm.CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	if config.Control != nil {
		err = config.Control(id)
	}
	if err == nil {
		err = id.Bind(info.Src)
	}
	if err == nil {
		err = id.Listen(config.Backlog)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	l := &Listener[C]{
		config: config, id: id, addr: tcpAddr(id.LocalAddr()),
		recent: make(chan *handshake, handshakes), ready: make(chan C), failures: make(chan error, 1),
	}
	l.due.Init()
	l.life, l.endLife = context.WithCancelCause(context.Background())
	l.tasks.Go(l.serve)
	return l, nil
}

// Addr returns the listener's address, a *net.TCPAddr.
func (l *Listener[C]) Addr() net.Addr { return l.addr }

// SetDeadline sets the deadline of Accept. A zero t stands for none.
func (l *Listener[C]) SetDeadline(t time.Time) error {
	if err := l.ended(); err != nil {
		return l.opErr("set", err)
	}
	l.due.Set(t)
	return nil
}

// ended returns why the listener has ended, or nil.
func (l *Listener[C]) ended() error {
	if l.closed.Load() {
		return net.ErrClosed
	}
	return context.Cause(l.life)
}

func (l *Listener[C]) opErr(op string, err error) error {
	return &net.OpError{Op: op, Net: l.config.Net, Addr: l.addr, Err: closedErr(err)}
}

// Accept waits for the next connection.
func (l *Listener[C]) Accept() (C, error) {
	var none C
	l.accepting.Lock()
	defer l.accepting.Unlock()
	for {
		if err := l.ended(); err != nil {
			return none, l.opErr("accept", err)
		}
		if l.due.Past() {
			return none, l.opErr("accept", os.ErrDeadlineExceeded)
		}
		select {
		case c := <-l.ready:
			return c, nil
		case err := <-l.failures:
			return none, l.opErr("accept", err)
		case <-l.life.Done():
		case <-l.due.Wake():
		}
	}
}

// serve answers requests until the listener ends.
func (l *Listener[C]) serve() {
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
		if l.waiting.Load() >= int64(l.config.Backlog) {
			_ = e.SyncID.Close() // rejects the client
			continue
		}
		h := l.beginHandshake()
		l.tasks.Go(func() {
			c, ok := l.handshake(h, e)
			close(h.done)
			h.end()
			if ok {
				l.offer(c)
			}
		})
	}
}

// beginHandshake makes room for a handshake.
func (l *Listener[C]) beginHandshake() *handshake {
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

// handshake turns a request into a connection, or rejects the client.
func (l *Listener[C]) handshake(h *handshake, e *rdmacm.Event) (C, bool) {
	c, err := l.config.Answer(h.ctx, e)
	if err == nil {
		return c, true
	}
	_ = e.SyncID.Close()
	var own *acceptError
	if errors.As(err, &own) {
		l.report(own)
	}
	return c, false
}

// report makes Accept return a failure of this side.
func (l *Listener[C]) report(err *acceptError) {
	select {
	case l.failures <- err:
	default: // a failure is pending already
	}
}

// offer waits for Accept to take a connection.
func (l *Listener[C]) offer(c C) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	ended := l.config.Ended(c)
	for {
		select {
		case l.ready <- c:
			return
		case <-ended:
			if l.config.HasUnread(c) {
				ended = nil // for Accept, all the same
				continue
			}
		case <-l.life.Done():
		}
		l.config.Drop(c)
		return
	}
}

// Close stops listening. It ends connections that Accept has not returned. Connections that
// Accept has returned are unaffected. A Listener that has failed must be closed, too.
func (l *Listener[C]) Close() error {
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
