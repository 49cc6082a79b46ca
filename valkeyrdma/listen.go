package valkeyrdma

import (
	"context"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/rdmacm"
)

// ListenConfig has the options of a Listener. The zero value is ready for use.
type ListenConfig struct {
	Options

	// Backlog is how many clients may wait for Accept; 0 stands for 1024. Further clients are
	// rejected. Each waiting client already has the memory of a connection. A client that
	// leaves meanwhile, and has sent nothing, is dropped.
	Backlog int

	// Control, if not nil, is called with the listener's ID before it is bound. It can set the ID's options.
	Control func(*rdmacm.SyncID) error
}

// A Listener accepts connections of Valkey's clients. It is a net.Listener. Its methods are safe for concurrent use.
type Listener struct {
	core *netconn.Listener[*Conn]
}

// Listen listens on an address, as ListenConfig.Listen does with the zero ListenConfig.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// Listen listens on an address, "host:port". Without a host it listens on all addresses. Port 0 stands for any free
// port: see Listener.Addr. The context is used to look up names only.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (*Listener, error) {
	o := lc.Options
	core, err := netconn.Listen(ctx, network, address, netconn.ListenConfig[*Conn]{
		Net: opNet, Backlog: lc.Backlog, Control: lc.Control,
		Answer:    func(ctx context.Context, e *rdmacm.Event) (*Conn, error) { return answer(ctx, e, o) },
		Ended:     func(c *Conn) <-chan struct{} { return c.link.Ended },
		HasUnread: (*Conn).hasUnread,
		Drop: func(c *Conn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		},
	})
	if err != nil {
		return nil, err
	}
	return &Listener{core}, nil
}

// answer accepts a request. If it fails, the caller must close the ID.
func answer(ctx context.Context, e *rdmacm.Event, o Options) (*Conn, error) {
	c, err := newConn(e.SyncID, o)
	if err != nil {
		return nil, netconn.ThisSide(err)
	}
	if err = e.SyncID.Accept(ctx, param()); err == nil {
		err = netconn.ThisSide(c.establish())
	}
	if err != nil {
		_ = c.link.Release()
		return nil, err
	}
	return c, nil
}

// Addr returns the listener's address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.core.Addr() }

// SetDeadline sets the deadline of Accept. A zero t stands for none.
func (l *Listener) SetDeadline(t time.Time) error { return l.core.SetDeadline(t) }

// Accept waits for the next connection, a *Conn. If this side fails to make one, for lack of memory or file
// descriptors for instance, the client is rejected, and Accept returns an error whose Temporary method
// reports true. A later Accept may succeed. Clients' failures are not reported.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.core.Accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close stops listening. It ends connections that Accept has not returned. Connections that
// Accept has returned are unaffected. A Listener that has failed must be closed, too.
func (l *Listener) Close() error {
	if l == nil {
		return net.ErrClosed
	}
	return l.core.Close()
}
