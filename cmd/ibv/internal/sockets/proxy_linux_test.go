package sockets

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A shortListener sometimes fails because there are no files left.
type shortListener struct {
	net.Listener
	calls int
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.calls++; l.calls%2 == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestProxyGoesOn: too many clients end neither the proxy nor its present connections.
func TestProxyGoesOn(t *testing.T) {
	server := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error)
	go func() { served <- endpoint{address: server.Addr().String()}.serve(&shortListener{Listener: l}, 3) }()
	for range 3 {
		c := rdmatest.Must(net.Dial("tcp", l.Addr().String()))(t)
		defer c.Close()
		rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
		rdmatest.Must(c.Write([]byte("x")))(t)
		rdmatest.Must(io.ReadFull(c, make([]byte, 1)))(t)
	}
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the proxy ended with %v", err)
	}
}

// TestProxyEndsBoth: when one direction fails, the other ends, too, even if the client is silent.
func TestProxyEndsBoth(t *testing.T) {
	server := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer server.Close()
	go func() {
		if c, err := server.Accept(); err == nil {
			c.(*net.TCPConn).SetLinger(0)
			c.Close() // the proxy's read fails
		}
	}()
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	client := rdmatest.Must(net.Dial("tcp", l.Addr().String()))(t)
	defer client.Close()
	accepted := rdmatest.Must(l.Accept())(t)
	forwarded := make(chan error, 1)
	go func() { forwarded <- endpoint{address: server.Addr().String()}.forward(accepted) }()
	select {
	case err := <-forwarded:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the server has reset the connection: %v", err)
		}
	case <-time.After(rdmatest.Patience):
		t.Fatal("the client's connection goes on without the server's")
	}
	rdmatest.Check(t, client.SetDeadline(time.Now().Add(rdmatest.Patience)))
	if n, err := client.Read(make([]byte, 1)); n != 0 || os.IsTimeout(err) {
		t.Errorf("the client reads %d bytes, %v", n, err)
	}
}
