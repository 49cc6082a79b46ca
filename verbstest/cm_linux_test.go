package verbstest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// Messages pass in both directions, between two devices, until one end closes.
func TestConn(t *testing.T) {
	n := verbstest.New(t)
	l := get(rdmacm.Listen(t.Context(), "tcp", "192.0.2.2:0", nil))(t)
	served := make(chan error)
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			served <- err
			return
		}
		b := make([]byte, 100)
		for {
			k, err := c.Recv(context.Background(), b)
			if err == nil {
				err = c.Send(context.Background(), bytes.ToUpper(b[:k]))
			}
			if err != nil {
				served <- errors.Join(c.Close(), l.Close())
				return
			}
		}
	}()
	c := get(rdmacm.Dial(t.Context(), "tcp", l.Addr().String(), &rdmacm.Options{LocalAddr: netip.AddrPortFrom(n.Device(0).Addr(), 0)}))(t)
	if name := c.PD().Device().Info().Name(); name != "vt0" {
		t.Errorf("the connection is on %s", name)
	}
	b := make([]byte, 100)
	for _, s := range []string{"one", "two", "three"} {
		check(t, c.Send(t.Context(), []byte(s)))
		if k := get(c.Recv(t.Context(), b))(t); string(b[:k]) != strings.ToUpper(s) {
			t.Errorf("%q came back as %q", s, b[:k])
		}
	}
	check(t, c.Close())
	check(t, <-served)
}

// The client gets the reason why there is no connection.
func TestNoConn(t *testing.T) {
	n := verbstest.New(t)
	if _, err := rdmacm.Dial(t.Context(), "tcp", "192.0.2.1:7", nil); !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := rdmacm.Dial(t.Context(), "tcp", "198.51.100.1:7", nil); !errors.Is(err, rdmacm.ErrAddrResolution) {
		t.Errorf("nobody has the address: %v", err)
	}
	if _, err := rdmacm.Listen(t.Context(), "tcp", "198.51.100.1:7", nil); err == nil {
		t.Error("bound to an address that no device has")
	}
	n.Device(1).SetPort(false)
	if _, err := rdmacm.Dial(t.Context(), "tcp", "192.0.2.2:7", &rdmacm.Options{LocalAddr: netip.MustParseAddrPort("192.0.2.1:0")}); !errors.Is(err, rdmacm.ErrUnreachable) {
		t.Errorf("the port is down: %v", err)
	}
}

// net/http works over rsocket as over TCP.
func TestHTTP(t *testing.T) {
	verbstest.New(t)
	l := get(rsocket.Listen("tcp", "127.0.0.1:0"))(t)
	text := strings.Repeat("rdma ", 100_000)
	s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || string(b) != text {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		w.Write(b)
	})}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	transport := &http.Transport{DialContext: new(rsocket.Dialer).DialContext}
	client := http.Client{Transport: transport}
	for range 3 {
		r := get(client.Post("http://"+l.Addr().String(), "text/plain", strings.NewReader(text)))(t)
		b := get(io.ReadAll(r.Body))(t)
		check(t, r.Body.Close())
		if string(b) != text {
			t.Errorf("%d bytes came back", len(b))
		}
	}
	transport.CloseIdleConnections()
	check(t, s.Shutdown(t.Context()))
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
}

// A connection whose device is removed ends with ErrDeviceRemoved.
func TestConnRemove(t *testing.T) {
	n := verbstest.New(t)
	l := get(rdmacm.Listen(t.Context(), "tcp", "192.0.2.2:0", nil))(t)
	accepted := make(chan *rdmacm.Conn)
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	c := get(rdmacm.Dial(t.Context(), "tcp", l.Addr().String(), &rdmacm.Options{LocalAddr: netip.AddrPortFrom(n.Device(0).Addr(), 0)}))(t)
	s := <-accepted
	n.Device(0).Remove()
	<-c.Done()
	<-s.Done()
	for _, x := range []io.Closer{c, s, l} {
		check(t, x.Close())
	}
}

// As the kernel, the connection manager refuses unknown port spaces, and to listen with an ID that already
// listens or has a peer's address.
func TestRefusedIDs(t *testing.T) {
	verbstest.New(t)
	if _, err := rdmacm.CreateSyncID(99); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("port space 99: %v", err)
	}
	id := get(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer id.Close()
	check(t, id.Listen(0))
	if err := id.Listen(0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("listening twice: %v", err)
	}
	client := get(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer client.Close()
	check(t, client.ResolveAddr(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.1:7"), time.Second))
	if err := client.Listen(0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("listening after ResolveAddr: %v", err)
	}
}
