package rsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/netconn"
)

// DialAny is like DialContext, but connects by TCP if RDMA fails: this host has no device, no
// device leads to the peer, or no program listens there for RDMA. The net.Conn is a *Conn or
// a *net.TCPConn. If there is a time limit, RDMA may take half of the time.
func (d *Dialer) DialAny(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := d.core().Limit(ctx)
	defer cancel()
	part, end := netconn.Share(ctx, 2)
	c, err := d.DialConn(part, network, address)
	end()
	if err == nil {
		return c, nil
	}
	tcp := net.Dialer{Resolver: d.Resolver}
	if d.LocalAddr.IsValid() {
		tcp.LocalAddr = net.TCPAddrFromAddrPort(d.LocalAddr)
	}
	plain, tcpErr := tcp.DialContext(ctx, network, address)
	if tcpErr != nil {
		return nil, errors.Join(err, tcpErr)
	}
	return plain, nil
}

// ListenAny is like Listen, but for connections by RDMA and by TCP on one port. Accept
// returns a *Conn or a *net.TCPConn. On a host without an RDMA device that has the address,
// it listens for TCP only. Over iWARP, where RDMA listens on TCP's ports itself, it fails.
func (lc *ListenConfig) ListenAny(ctx context.Context, network, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: opNet, Err: err}
	}
	for {
		tcp, err := new(net.ListenConfig).Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		same := net.JoinHostPort(host, strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port))
		rdma, err := lc.Listen(ctx, network, same)
		switch {
		case err == nil:
			return newAnyListener(tcp, rdma), nil
		case netconn.NoDevice(err):
			return tcp, nil
		}
		_ = tcp.Close() // err has the reason
		if port != "0" || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

// An anyListener accepts from two listeners.
type anyListener struct {
	both  [2]net.Listener // TCP's first
	ready chan accepted
	ended chan struct{}
	end   sync.Once
	tasks sync.WaitGroup
}

type accepted struct {
	c   net.Conn
	err error
}

func newAnyListener(tcp, rdma net.Listener) *anyListener {
	l := &anyListener{both: [2]net.Listener{tcp, rdma}, ready: make(chan accepted), ended: make(chan struct{})}
	for _, one := range l.both {
		l.tasks.Go(func() { l.accept(one) })
	}
	return l
}

// accept passes a listener's connections to Accept, until the listener fails for good.
func (l *anyListener) accept(one net.Listener) {
	for {
		c, err := one.Accept()
		select {
		case l.ready <- accepted{c, err}:
		case <-l.ended:
			if c != nil {
				_ = c.Close()
			}
			return
		}
		var e net.Error
		if err != nil && !(errors.As(err, &e) && temporary(e)) {
			return
		}
	}
}

func temporary(e net.Error) bool {
	t, ok := e.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

func (l *anyListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.c, a.err
	case <-l.ended:
		return nil, &net.OpError{Op: "accept", Net: opNet, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

func (l *anyListener) Addr() net.Addr { return l.both[0].Addr() }

func (l *anyListener) Close() error {
	err := fmt.Errorf("close: %w", net.ErrClosed)
	l.end.Do(func() {
		close(l.ended)
		err = errors.Join(l.both[0].Close(), l.both[1].Close())
		l.tasks.Wait()
	})
	return err
}
