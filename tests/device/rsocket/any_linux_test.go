package rsocket

import (
	"io"
	"net"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

var _ = rdmatest.Test(TestDialAnyListenAny, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// TestDialAnyListenAny: the sides use RDMA where both have it, and TCP otherwise.
func TestDialAnyListenAny(t *testing.T) {
	checkLeaks(t)
	var lc rsocket.ListenConfig
	d := rsocket.Dialer{Timeout: rdmatest.Patience}
	for _, test := range []struct {
		name   string
		listen func() (net.Listener, error)
		dial   func(address string) (net.Conn, error)
		rdma   bool
	}{
		{"both", func() (net.Listener, error) { return lc.ListenAny(t.Context(), "tcp", host+":0") },
			func(a string) (net.Conn, error) { return d.DialAny(t.Context(), "tcp", a) }, true},
		{"an address without a device", func() (net.Listener, error) { return lc.ListenAny(t.Context(), "tcp", "127.0.0.1:0") },
			func(a string) (net.Conn, error) { return d.DialAny(t.Context(), "tcp", a) }, false},
		{"a server without RDMA", func() (net.Listener, error) { return net.Listen("tcp", host+":0") },
			func(a string) (net.Conn, error) { return d.DialAny(t.Context(), "tcp", a) }, false},
		{"a client without RDMA", func() (net.Listener, error) { return lc.ListenAny(t.Context(), "tcp", host+":0") },
			func(a string) (net.Conn, error) { return net.Dial("tcp", a) }, false},
		{"a client of RDMA only", func() (net.Listener, error) { return lc.ListenAny(t.Context(), "tcp", host+":0") },
			func(a string) (net.Conn, error) { return d.Dial("tcp", a) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := rdmatest.Must(test.listen())(t)
			served := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					_, err = io.Copy(c, c)
					c.Close()
				}
				served <- err
			}()
			c := rdmatest.Must(test.dial(l.Addr().String()))(t)
			if _, rdma := c.(*rsocket.Conn); rdma != test.rdma {
				t.Errorf("the connection is a %T", c)
			}
			rdmatest.Must(c.Write([]byte("hello")))(t)
			b := make([]byte, 5)
			if n, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
				t.Errorf("%q, %v", b[:n], err)
			}
			rdmatest.Close(t, c)
			rdmatest.Check(t, <-served)
			rdmatest.Close(t, l)
		})
	}
}
