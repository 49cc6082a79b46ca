package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

func TestMessages(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, nil)
	client, server := dial(t, l, nil)
	if client.RemoteAddr() != server.LocalAddr() || client.LocalAddr() != server.RemoteAddr() {
		t.Errorf("client %v to %v, server %v to %v", client.LocalAddr(), client.RemoteAddr(), server.LocalAddr(), server.RemoteAddr())
	}
	ctx := patient(t)
	b := make([]byte, client.MaxMessage())
	for i, n := range []int{0, 1, 100, 4095, 4096, 7, 0, 4096, 64} {
		for _, ends := range [][2]*rdmacm.Conn{{client, server}, {server, client}} {
			message := rdmatest.Pattern(n, i)
			rdmatest.Check(t, ends[0].Send(ctx, message))
			got, err := ends[1].Recv(ctx, b)
			rdmatest.Check(t, err)
			if !bytes.Equal(b[:got], message) {
				t.Fatalf("message %d: received %d bytes that differ from those sent", i, got)
			}
		}
	}
	rdmatest.Check(t, client.Send(ctx, make([]byte, 10)))
	if n, err := server.Recv(ctx, make([]byte, 4)); n != 4 || err != io.ErrShortBuffer {
		t.Errorf("a message that is too long: %d, %v", n, err)
	}
	wantError(t, client.Send(ctx, make([]byte, 4097)), rdmacm.ErrInvalid)
}

// TestRetryCount: the side that accepts may want fewer retries than the peer asks for, but gets no more.
func TestRetryCount(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, test := range []struct{ connect, accept, want int }{{7, 6, 6}, {5, 7, 5}} {
		l, _ := listen(t, &rdmacm.Options{Param: &rdmacm.ConnParam{RetryCount: test.accept}})
		_, server := dial(t, l, &rdmacm.Options{Param: &rdmacm.ConnParam{RetryCount: test.connect}})
		a, _, err := server.QP().Query()
		if err != nil || int(a.RetryCount) != test.want {
			t.Errorf("the peer asks for %d retries, this side for %d: there are %d, %v", test.connect, test.accept, a.RetryCount, err)
		}
	}
}

// Messages that exceed the peer's buffers wait. All messages that were sent before the
// end of the connection can be received after it.
func TestMessagesBeforeEnd(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, nil)
	client, server := dial(t, l, nil)
	ctx := patient(t)
	for i := range 4 {
		rdmatest.Check(t, client.Send(ctx, []byte{byte(i)}))
	}
	rdmatest.Close(t, client)
	<-server.Done()
	var b [1]byte
	for i := range 4 {
		if n, err := server.Recv(ctx, b[:]); n != 1 || err != nil || b[0] != byte(i) {
			t.Fatalf("message %d: %d bytes, %v, %v", i, n, b, err)
		}
	}
	for range 2 {
		if _, err := server.Recv(ctx, b[:]); err != io.EOF {
			t.Errorf("after the end: %v, want EOF", err)
		}
	}
	wantError(t, server.Send(ctx, b[:]), rdmacm.ErrDisconnected)
	wantError(t, server.Err(), rdmacm.ErrDisconnected)
	_, err := client.Recv(ctx, b[:])
	wantError(t, err, rdmacm.ErrClosed)
}

// The end of a connection wakes all waiters, whichever side ends it.
func TestCloseWakes(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, nil)
	for _, side := range []string{"own", "peer"} {
		client, server := dial(t, l, nil)
		ends := map[string]*rdmacm.Conn{"own": client, "peer": server}
		result := make(chan error)
		go func() {
			_, err := client.Recv(t.Context(), make([]byte, 1))
			result <- err
		}()
		rdmatest.Close(t, ends[side])
		err := <-result
		if side == "peer" && err != io.EOF {
			t.Errorf("the peer closed: %v", err)
		}
		if side == "own" {
			wantError(t, err, rdmacm.ErrClosed)
		}
	}
}

func TestRecvCancelled(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, nil)
	client, server := dial(t, l, nil)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := client.Recv(ctx, make([]byte, 1))
		result <- err
	}()
	cancel()
	wantError(t, <-result, context.Canceled)
	// The connection still works.
	rdmatest.Check(t, server.Send(patient(t), []byte{42}))
	var b [1]byte
	if n, err := client.Recv(patient(t), b[:]); n != 1 || err != nil || b[0] != 42 {
		t.Errorf("after a cancelled receive: %d, %v, %v", n, b, err)
	}
}

// Memory that is registered on the connection's PD must be closed first.
func TestConnBusy(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, nil)
	client, _ := dial(t, l, nil)
	mr := rdmatest.Must(client.PD().AllocMR(64, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	lent := rdmatest.Must(client.SendBuffer(patient(t)))(t)
	wantError(t, client.Close(), rdmacm.ErrBusy)
	lent.Release()
	rdmatest.Check(t, client.Close()) // with what is on its PD
	rdmatest.Check(t, mr.Close())
	rdmatest.Check(t, client.Close())
}

func TestPrivateData(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, n := range []int{0, 1, 55, 56, 57} {
		fits := n <= rdmacm.MaxConnectData
		t.Run(fmt.Sprintf("request/%d", n), func(t *testing.T) {
			l, _ := listen(t, nil)
			param := rdmacm.ConnParam{}
			param.PrivateData = rdmatest.Pattern(n, 1)
			param.ResponderResources, param.InitiatorDepth = 4, 2 // powers of two, as rxe rounds up
			client, err := rdmacm.Dial(patient(t), "tcp", l.Addr().String(), &rdmacm.Options{Param: &param})
			if !fits {
				wantError(t, err, rdmacm.ErrInvalid)
				return
			}
			rdmatest.Check(t, err)
			defer client.Close()
			server, err := l.Accept(patient(t))
			rdmatest.Check(t, err)
			defer server.Close()
			peer := server.Peer()
			wantData(t, peer.PrivateData, param.PrivateData, rdmacm.MaxConnectData)
			// The client's values, as seen from the server.
			if peer.ResponderResources != 2 || peer.InitiatorDepth != 4 {
				t.Errorf("the request has %d responder resources and depth %d", peer.ResponderResources, peer.InitiatorDepth)
			}
			a, _, err := server.QP().Query()
			rdmatest.Check(t, err)
			if a.MaxDestRDAtomic != 2 || a.MaxRDAtomic != 4 {
				t.Errorf("the server's QP accepts %d reads and issues %d", a.MaxDestRDAtomic, a.MaxRDAtomic)
			}
		})
	}
	for _, n := range []int{0, 1, 196, 197} {
		t.Run(fmt.Sprintf("answer/%d", n), func(t *testing.T) {
			param := rdmacm.ConnParam{}
			param.PrivateData = rdmatest.Pattern(n, 2)
			l, addr := listen(t, &rdmacm.Options{Decide: func(context.Context, rdmacm.Request) (*rdmacm.ConnParam, error) {
				return &param, nil
			}})
			client, err := rdmacm.Dial(patient(t), "tcp", addr, nil)
			if n > rdmacm.MaxAcceptData {
				wantError(t, err, rdmacm.ErrRejected)
				return
			}
			rdmatest.Check(t, err)
			defer client.Close()
			wantData(t, client.Peer().PrivateData, param.PrivateData, rdmacm.MaxAcceptData)
			rdmatest.Check(t, rdmatest.Must(l.Accept(patient(t)))(t).Close())
		})
	}
	for _, n := range []int{0, 1, 148} {
		t.Run(fmt.Sprintf("reject/%d", n), func(t *testing.T) {
			data := rdmatest.Pattern(n, 3)
			_, addr := listen(t, &rdmacm.Options{Decide: func(_ context.Context, r rdmacm.Request) (*rdmacm.ConnParam, error) {
				return nil, &rdmacm.Rejection{PrivateData: data}
			}})
			_, err := rdmacm.Dial(patient(t), "tcp", addr, nil)
			wantError(t, err, rdmacm.ErrRejected, syscall.ECONNREFUSED)
			var e *rdmacm.EventError
			if !errors.As(err, &e) || e.Type != rdmacm.EventRejected || e.Reason() != rdmacm.RejectConsumer {
				t.Fatalf("got %v", err)
			}
			wantData(t, e.PrivateData, data, rdmacm.MaxRejectData)
		})
	}
}

// wantData compares received with sent private data. Zeros fill the received data up to
// room bytes.
func wantData(t *testing.T, got, sent []byte, room int) {
	t.Helper()
	want := append(bytes.Clone(sent), make([]byte, room-len(sent))...)
	if !bytes.Equal(got, want) {
		t.Errorf("received private data %x, want %x", got, want)
	}
}

var _ = rdmatest.Test(TestParamDefaults, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// Parameters that aren't set have their defaults, even if private data is set. None
// requests none.
func TestParamDefaults(t *testing.T) {
	rdmatest.CheckLeaks(t)
	data := []byte("data")
	for _, test := range []struct {
		name  string
		param rdmacm.ConnParam
		reads bool
		retry uint8
		rnr   uint8
	}{
		{"data alone", rdmacm.ConnParam{PrivateData: data}, true, 6, 7},
		{"none", rdmacm.ConnParam{
			ResponderResources: rdmacm.None, InitiatorDepth: rdmacm.None, RetryCount: rdmacm.None, RNRRetryCount: rdmacm.None,
		}, false, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, addr := listen(t, &rdmacm.Options{Param: &test.param})
			client := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", addr, &rdmacm.Options{Param: &test.param}))(t)
			defer client.Close()
			server := rdmatest.Must(l.Accept(patient(t)))(t)
			defer server.Close()
			peer := server.Peer()
			if peer.RNRRetryCount != int(test.rnr) || peer.RetryCount != int(test.retry) ||
				(peer.ResponderResources > 0) != test.reads || (peer.InitiatorDepth > 0) != test.reads {
				t.Errorf("the client requested %+v", peer)
			}
			for _, c := range []*rdmacm.Conn{client, server} {
				a, _, err := c.QP().Query()
				rdmatest.Check(t, err)
				// mlx5 stores a power of two, and reports 1 for none.
				if a.RNRRetry != test.rnr || (a.MaxRDAtomic > 1) != test.reads || (a.MaxDestRDAtomic > 1) != test.reads {
					t.Errorf("the QP has %+v", a)
				}
			}
			if a, _, err := client.QP().Query(); err != nil || a.RetryCount != test.retry {
				t.Errorf("the client's QP has %+v, %v", a, err)
			}
		})
	}
}

var _ = rdmatest.Test(TestAddresses, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

func TestAddresses(t *testing.T) {
	rdmatest.CheckLeaks(t)
	linkLocal := linkLocalAddr(t)
	for _, test := range []struct{ network, listen, dial string }{
		{"tcp", host, host},
		{"tcp4", "", host},
		{"tcp", "", host},
		{"tcp6", "", linkLocal.String()},
		{"tcp6", linkLocal.String(), linkLocal.String()},
		{"ib", host, host},
	} {
		t.Run(test.network+" "+test.listen+" "+test.dial, func(t *testing.T) {
			l, err := rdmacm.Listen(patient(t), test.network, net.JoinHostPort(test.listen, "0"), nil)
			rdmatest.Check(t, err)
			defer l.Close()
			port := fmt.Sprint(l.Addr().(rdmacm.Addr).AddrPort().Port())
			client, err := rdmacm.Dial(patient(t), test.network, net.JoinHostPort(test.dial, port), nil)
			rdmatest.Check(t, err)
			defer client.Close()
			server, err := l.Accept(patient(t))
			rdmatest.Check(t, err)
			defer server.Close()
			if got := client.RemoteAddr().(rdmacm.Addr).AddrPort().Addr().String(); got != test.dial {
				t.Errorf("connected to %v, want %v", got, test.dial)
			}
			rdmatest.Check(t, client.Send(patient(t), []byte("x")))
			if _, err := server.Recv(patient(t), make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

// linkLocalAddr returns the interface's link-local IPv6 address, with its zone. The rig
// disables IPv6 on mlx5's interfaces, so the address may have to be created.
func linkLocalAddr(t *testing.T) netip.Addr {
	t.Helper()
	name := rdmatest.NetDev(rdmatest.Device)
	i := rdmatest.Must(net.InterfaceByName(name))(t)
	rdmatest.EnableIPv6(t, name)
	for range 100 {
		for _, a := range rdmatest.Must(i.Addrs())(t) {
			addr := netip.MustParsePrefix(a.String()).Addr()
			if addr.Is6() && addr.IsLinkLocalUnicast() {
				return addr.WithZone(name)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s has no link-local address", name)
	panic("unreachable")
}

func TestRefused(t *testing.T) {
	rdmatest.CheckLeaks(t)
	t.Run("no listener", func(t *testing.T) {
		_, err := rdmacm.Dial(patient(t), "tcp", host+":9", nil)
		wantError(t, err, rdmacm.ErrRejected, syscall.ECONNREFUSED)
		var e *rdmacm.EventError
		if !errors.As(err, &e) || e.Reason() != rdmacm.RejectInvalidServiceID {
			t.Errorf("got %v", err)
		}
	})
	t.Run("unroutable", func(t *testing.T) {
		_, err := rdmacm.Dial(patient(t), "tcp", "10.9.8.7:9", nil)
		wantError(t, err, rdmacm.ErrAddrResolution, syscall.ENETUNREACH)
	})
	t.Run("no neighbour", func(t *testing.T) {
		_, err := rdmacm.Dial(patient(t), "tcp", "192.168.77.99:9", &rdmacm.Options{ResolveTimeout: 100e6})
		wantError(t, err, rdmacm.ErrAddrResolution)
		var e *rdmacm.EventError
		if !errors.As(err, &e) || e.Type != rdmacm.EventAddrError {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no RDMA device", func(t *testing.T) {
		_, err := rdmacm.Dial(patient(t), "tcp", "127.0.0.1:9", nil)
		wantError(t, err, syscall.ENODEV)
	})
	t.Run("foreign address", func(t *testing.T) {
		_, err := rdmacm.Listen(patient(t), "tcp", "10.9.8.7:0", nil)
		wantError(t, err, syscall.EADDRNOTAVAIL)
	})
	t.Run("port in use", func(t *testing.T) {
		_, addr := listen(t, nil)
		_, err := rdmacm.Listen(patient(t), "tcp", addr, nil)
		wantError(t, err, syscall.EADDRINUSE)
	})
	t.Run("name", func(t *testing.T) {
		if _, err := rdmacm.Dial(patient(t), "tcp", "no-such-host.invalid:1", nil); err == nil {
			t.Error("connected to a host that doesn't exist")
		}
	})
	t.Run("link-local without a zone", func(t *testing.T) {
		addr := linkLocalAddr(t).WithZone("").String()
		_, err := rdmacm.Listen(patient(t), "tcp", net.JoinHostPort(addr, "0"), nil)
		if wantError(t, err, syscall.EINVAL); !strings.Contains(err.Error(), "zone") {
			t.Errorf("the error doesn't mention the zone: %v", err)
		}
	})
	for _, network := range []string{"udp", "quic", ""} {
		_, err := rdmacm.Dial(patient(t), network, host+":1", nil)
		wantError(t, err, rdmacm.ErrInvalid)
	}
}

// Beyond the backlog, clients are rejected at once.
func TestBacklog(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, addr := listen(t, &rdmacm.Options{Backlog: 2})
	var clients []*rdmacm.Conn
	for i := range 5 {
		c, err := rdmacm.Dial(patient(t), "tcp", addr, nil)
		if i < 2 {
			rdmatest.Check(t, err)
			clients = append(clients, c)
		} else {
			wantError(t, err, rdmacm.ErrRejected)
		}
	}
	for _, c := range clients {
		rdmatest.Check(t, rdmatest.Must(l.Accept(patient(t)))(t).Close())
		rdmatest.Check(t, c.Close())
	}
	client, server := dial(t, l, nil)
	rdmatest.Check(t, client.Send(patient(t), nil))
	_, err := server.Recv(patient(t), nil)
	rdmatest.Check(t, err)
}

// silent returns the address of a listener that never replies.
func silent(t *testing.T) string {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	t.Cleanup(func() { rdmatest.Close(t, id) })
	rdmatest.Check(t, id.Bind(netip.MustParseAddrPort(host+":0")))
	rdmatest.Check(t, id.Listen(0))
	return id.LocalAddr().String()
}

// A context that ends cancels the connection at any step.
func TestCancelled(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	t.Run("before", func(t *testing.T) {
		_, err := rdmacm.Dial(ended, "tcp", host+":9", nil)
		wantError(t, err, context.Canceled)
	})
	t.Run("resolving", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50e6)
		defer cancel()
		_, err := rdmacm.Dial(ctx, "tcp", "192.168.77.98:9", &rdmacm.Options{ResolveTimeout: 60e9})
		wantError(t, err, context.DeadlineExceeded)
	})
	t.Run("connecting", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200e6)
		defer cancel()
		_, err := rdmacm.Dial(ctx, "tcp", silent(t), nil)
		wantError(t, err, context.DeadlineExceeded)
	})
	t.Run("accepting", func(t *testing.T) {
		l, _ := listen(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50e6)
		defer cancel()
		_, err := l.Accept(ctx)
		wantError(t, err, context.DeadlineExceeded)
	})
	t.Run("closing the listener", func(t *testing.T) {
		l := rdmatest.Must(rdmacm.Listen(t.Context(), "tcp", host+":0", nil))(t)
		result := make(chan error)
		go func() {
			_, err := l.Accept(t.Context())
			result <- err
		}()
		rdmatest.Check(t, l.Close())
		wantError(t, <-result, rdmacm.ErrClosed)
	})
}

// Many connections share one event channel, and end at the same time.
func TestManyAtOnce(t *testing.T) {
	rdmatest.CheckLeaks(t)
	n := long(100, 500)
	if rdmatest.KindOf() == rdmatest.SIW {
		n = 25 // siw gives each connection ten seconds
	}
	options := &rdmacm.Options{Messages: 1, MessageSize: 64}
	l, addr := listen(t, options)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var serving sync.WaitGroup
	serving.Go(func() {
		for range n {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			serving.Go(func() {
				defer c.Close()
				b := make([]byte, c.MaxMessage())
				for {
					n, err := c.Recv(t.Context(), b)
					if err == io.EOF {
						return
					}
					if err == nil {
						err = c.Send(t.Context(), b[:n])
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	})
	var dialing, standing sync.WaitGroup
	standing.Add(n)
	for i := range n {
		dialing.Go(func() {
			c, err := rdmacm.Dial(t.Context(), "tcp", addr, options)
			standing.Done()
			if err != nil {
				t.Error(err)
				giveUp()
				return
			}
			defer c.Close()
			standing.Wait() // all at once
			message, b := fmt.Append(nil, "client ", i), make([]byte, 64)
			if err := c.Send(t.Context(), message); err != nil {
				t.Error(err)
				return
			}
			got, err := c.Recv(t.Context(), b)
			if err != nil || !bytes.Equal(b[:got], message) {
				t.Errorf("client %d got %q, %v", i, b[:got], err)
			}
		})
	}
	dialing.Wait()
	serving.Wait()
}

// A sequence of connections leaks nothing.
func TestSequence(t *testing.T) {
	rdmatest.CheckLeaks(t)
	options := &rdmacm.Options{Messages: 1, MessageSize: 64}
	l, addr := listen(t, options)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			c.Recv(t.Context(), nil)
			c.Close()
		}
	})
	ctx := t.Context()
	once := func() {
		c, err := rdmacm.Dial(ctx, "tcp", addr, options)
		rdmatest.Check(t, err)
		rdmatest.Check(t, c.Close())
	}
	n := long(100, 5000)
	for range n / 2 {
		once()
	}
	debug.FreeOSMemory()
	fds, before := rdmatest.FDs(t), rdmatest.RSS(t)
	for range n / 2 {
		once()
	}
	debug.FreeOSMemory()
	if now := rdmatest.FDs(t); now > fds+8 {
		t.Errorf("%d file descriptors after the first half, %d at the end", fds, now)
	}
	if now := rdmatest.RSS(t); now > before+before/4 {
		t.Errorf("%d bytes after the first half, %d at the end", before, now)
	}
	rdmatest.Check(t, l.Close())
	serving.Wait()
}
