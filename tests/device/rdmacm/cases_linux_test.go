package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// stranger asks the listener for a connection in the name of a queue pair that need not exist, and
// waits for the answer.
func stranger(t testing.TB, addr netip.AddrPort, qpn uint32) (*rdmacm.SyncID, error) {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	rdmatest.Check(t, id.ResolveAddr(patient(t), none, addr, resolve))
	rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
	_, err := id.Connect(patient(t), &rdmacm.ConnParam{QPNum: qpn})
	return id, err
}

var _ = rdmatest.Test(TestHalfOpenClients, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// A client that never confirms occupies a slot of the backlog only for a moment, whatever the
// handshake timeout.
func TestHalfOpenClients(t *testing.T) {
	rdmatest.CheckLeaks(t)
	refused := make(chan error, 100)
	l, addr := listen(t, &rdmacm.Options{
		Backlog: 2, HandshakeTimeout: 10 * rdmatest.Patience,
		Refused: func(_ rdmacm.Request, err error) {
			select {
			case refused <- err:
			default: // earlier clients that were rejected
			}
		},
	})
	var ids []*rdmacm.SyncID
	for i := range uint32(2) {
		id, err := stranger(t, netip.MustParseAddrPort(addr), 0xabc000+i)
		rdmatest.Check(t, err)
		ids = append(ids, id)
	}
	served := make(chan *rdmacm.Conn)
	go func() {
		defer close(served)
		c, err := l.Accept(patient(t))
		if err != nil {
			t.Error(err)
			return
		}
		served <- c
	}()
	var client *rdmacm.Conn
	for ctx := patient(t); client == nil; {
		c, err := rdmacm.Dial(ctx, "tcp", addr, nil)
		if errors.Is(err, rdmacm.ErrRejected) && ctx.Err() == nil {
			continue
		}
		rdmatest.Check(t, err)
		client = c
	}
	server := <-served
	if server == nil {
		t.FailNow()
	}
	rdmatest.Check(t, client.Close())
	rdmatest.Check(t, server.Close())
	for _, id := range ids {
		rdmatest.Check(t, id.Close())
	}
	for err := range refused {
		if strings.Contains(err.Error(), "was evicted for another") {
			break
		}
	}
}

var _ = rdmatest.Test(TestStaleConnection, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.LongOn("rxe"), rdmatest.LongOn("mlx5-eth"))

// A client whose host has lost power comes back with a queue pair number that the server's kernel
// believes to be connected. The kernel rejects it, and ends the old connection. The server is
// notified, and the client's next attempt succeeds.
func TestStaleConnection(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, addr := listen(t, nil)
	to := netip.MustParseAddrPort(addr)
	const qpn = 0xabcdef
	old, err := stranger(t, to, qpn)
	rdmatest.Check(t, err)
	rdmatest.Check(t, old.Establish())
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	again, err := stranger(t, to, qpn)
	var e *rdmacm.EventError
	if !errors.As(err, &e) || e.Reason() != rdmacm.RejectStaleConn {
		t.Errorf("rejected with %v, want a stale connection", err)
	}
	rdmatest.Check(t, again.Close())
	<-server.Done()
	if err := server.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
		t.Errorf("the old connection has ended with %v", err)
	}
	rdmatest.Check(t, server.Close())
	rdmatest.Check(t, old.Close())
	if testing.Short() {
		return // it takes a minute until the kernel forgets the old connection
	}
	for ctx := patient(t); ; {
		again, err = stranger(t, to, qpn)
		if err == nil || ctx.Err() != nil {
			break
		}
		rdmatest.Check(t, again.Close())
	}
	rdmatest.Check(t, err)
	rdmatest.Check(t, again.Establish())
	server = rdmatest.Must(l.Accept(patient(t)))(t)
	rdmatest.Check(t, again.Close())
	rdmatest.Check(t, server.Close())
}

var _ = rdmatest.Test(TestIWARPDialGivenUp, rdmatest.OnSIW)

// Dial returns when its context ends, in whichever state the server is, and leaves nothing
// behind.
func TestIWARPDialGivenUp(t *testing.T) {
	rdmatest.CheckLeaks(t)
	checkGoroutines(t)
	deciding, decided := make(chan struct{}, 1), make(chan struct{})
	l, addr := listen(t, &rdmacm.Options{HandshakeTimeout: 10 * rdmatest.Patience, Decide: func(context.Context, rdmacm.Request) (*rdmacm.ConnParam, error) {
		deciding <- struct{}{}
		<-decided
		return nil, errors.New("too late")
	}})
	ctx, cancel := context.WithCancel(patient(t))
	go func() {
		<-deciding
		cancel()
	}()
	if _, err := rdmacm.Dial(ctx, "tcp", addr, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	close(decided)
	rdmatest.Check(t, l.Close())
}

// Errors about addresses say what is wrong, and name the address.
func TestAddressHints(t *testing.T) {
	l, addr := listen(t, nil)
	from := netip.MustParseAddrPort(host + ":17")
	first := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", addr, &rdmacm.Options{LocalAddr: from}))(t)
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	for _, test := range []struct {
		from netip.AddrPort
		to   string
		want error
		says string
	}{
		{from, addr, syscall.EADDRINUSE, "from " + from.String() + ": EADDRINUSE; another ID has the port"},
		{netip.MustParseAddrPort("10.9.8.7:0"), addr, syscall.EADDRNOTAVAIL, "no RDMA device of this host has the address"},
		{none, "127.0.0.1:1234", syscall.ENODEV, "the interface that leads there has no RDMA device"},
	} {
		ctx, cancel := context.WithTimeout(patient(t), time.Minute)
		_, err := rdmacm.Dial(ctx, "tcp", test.to, &rdmacm.Options{LocalAddr: test.from})
		cancel()
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || errors.Is(err, rdmacm.ErrDeviceRemoved) {
			t.Errorf("from %v to %s: %v", test.from, test.to, err)
		}
	}
	rdmatest.Check(t, first.Close())
	rdmatest.Check(t, server.Close())
}
