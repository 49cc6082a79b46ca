package rsocket

import (
	"errors"
	"net"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestAnyListener: one Accept returns what either listener accepts, and its failures. Close ends both.
func TestAnyListener(t *testing.T) {
	listen := func() net.Listener { return rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) }
	tcp, rdma := listen(), listen()
	l := newAnyListener(tcp, rdma)
	if l.Addr() != tcp.Addr() {
		t.Errorf("the address is %v", l.Addr())
	}
	for _, one := range []net.Listener{tcp, rdma, tcp} {
		client := rdmatest.Must(net.Dial("tcp", one.Addr().String()))(t)
		server := rdmatest.Must(l.Accept())(t)
		if server.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("accepted %v, want %v", server.RemoteAddr(), client.LocalAddr())
		}
		rdmatest.Close(t, client)
		rdmatest.Close(t, server)
	}
	rdmatest.Close(t, rdma)
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener has ended: %v", err)
	}
	// A client that is not accepted.
	client := rdmatest.Must(net.Dial("tcp", tcp.Addr().String()))(t)
	defer client.Close()
	if err := l.Close(); !errors.Is(err, net.ErrClosed) { // that of rdma
		t.Errorf("close: %v", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("close again: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("a client that nobody accepted is connected")
	}
}
