package rsocket

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestDeviceRemoved, rdmatest.OnRXE)

// TestDeviceRemoved: when the device is removed, calls end, and a listener and connections
// can be closed. After that, nothing keeps the device.
func TestDeviceRemoved(t *testing.T) {
	checkLeaks(t)
	rdmatest.ExtraRXE(t, "rxe8", "sockets0", "192.168.98.1")
	l := rdmatest.Must(rsocket.Listen("tcp", "192.168.98.1:0"))(t)
	client, server := connect(t, l, small)
	ends, accepts := make(chan error), make(chan error)
	for _, c := range []*rsocket.Conn{client, server} {
		rdmatest.Check(t, c.SetLinger(60)) // Close waits for the release, and reports its failure
		go func() {
			_, err := c.Read(make([]byte, 1))
			ends <- err
		}()
	}
	go func() {
		_, err := l.Accept()
		accepts <- err
	}()
	removal := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "link", "delete", "rxe8") // returns once no process has the device open
	for range 2 {
		// Either side may see the other's end first.
		if err := <-ends; !errors.Is(err, rdmacm.ErrDeviceRemoved) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a Read ended with %v", err)
		}
	}
	wantError(t, <-accepts, rdmacm.ErrDeviceRemoved)
	rdmatest.Check(t, client.Close())
	rdmatest.Check(t, server.Close())
	rdmatest.Check(t, l.Close())
	removal.Succeeds(t)
	wantError(t, l.Close(), net.ErrClosed)
	_, err := l.Accept()
	wantError(t, err, net.ErrClosed)
}

// lastQPNum is the QP number of the last half-open client. The kernel would take a second
// client with the same number for a client that connects anew.
var lastQPNum uint32 = 0x800000

// halfOpen requests a connection, and never confirms the answer.
func halfOpen(t testing.TB, to net.Addr) {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	t.Cleanup(func() { rdmatest.Close(t, id) })
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, to.(*net.TCPAddr).AddrPort(), time.Minute))
	rdmatest.Check(t, id.ResolveRoute(t.Context(), time.Minute))
	mr := rdmatest.Must(id.PD().AllocMR(64+rogueRing, verbs.MROptions{Access: remotely}))(t)
	t.Cleanup(func() { rdmatest.Close(t, mr) })
	lastQPNum++
	rdmatest.Must(id.Connect(t.Context(), &rdmacm.ConnParam{QPNum: lastQPNum, PrivateData: privateData(mr, 64)}))(t)
}

// TestHalfOpenSockets: clients that never confirm neither use up the backlog nor keep others from connecting, however
// many there are.
func TestHalfOpenSockets(t *testing.T) {
	checkLeaks(t)
	lc := rsocket.ListenConfig{Options: small, Backlog: 4}
	l := rdmatest.Must(lc.Listen(t.Context(), "tcp", host+":0"))(t)
	defer closed(t, l)
	for _, n := range []int{5, 64} { // the second time, more than a listener handles at once
		for range n {
			halfOpen(t, l.Addr())
		}
		client, server := connect(t, l, small)
		rdmatest.Must(client.Write([]byte("x")))(t)
		rdmatest.Must(io.ReadFull(server, make([]byte, 1)))(t)
	}
}

// TestWaitingClients: clients that leave before Accept are still accepted if they have sent
// something. Otherwise they make room.
func TestWaitingClients(t *testing.T) {
	checkLeaks(t)
	lc := rsocket.ListenConfig{Options: small, Backlog: 2}
	l := rdmatest.Must(lc.Listen(t.Context(), "tcp", host+":0"))(t)
	defer closed(t, l)
	// dial returns nil if the client is rejected.
	dial := func() net.Conn {
		d := rsocket.Dialer{Options: small, Timeout: rdmatest.Patience}
		c, err := d.Dial("tcp", l.Addr().String())
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		rdmatest.Check(t, err)
		return c
	}
	talker := dial()
	rdmatest.Must(talker.Write([]byte("here")))(t)
	rdmatest.Check(t, talker.Close())
	var waiting []net.Conn
	for c := dial(); c != nil; c = dial() { // until the backlog is full
		if waiting = append(waiting, c); len(waiting) > 100 {
			t.Fatal("nobody is rejected")
		}
	}
	for _, c := range waiting {
		rdmatest.Check(t, c.Close())
	}
	for deadline := time.Now().Add(rdmatest.Patience); ; {
		if c := dial(); c != nil {
			rdmatest.Check(t, c.Close())
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("clients that have left keep others out")
		}
	}
	for heard := ""; heard != "here"; {
		c := accept(t, l) // perhaps one that the listener hasn't dropped yet
		rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
		got, _ := io.ReadAll(c)
		heard = string(got)
		rdmatest.Check(t, c.Close())
	}
}

// TestAcceptFails: when this side can't make a connection, Accept returns a temporary error.
func TestAcceptFails(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{Inline: 1 << 16}) // more than any device has
	rdmatest.Check(t, l.SetDeadline(time.Now().Add(rdmatest.Patience)))
	for range 2 {
		_, err := rsocket.Dial("tcp", l.Addr().String())
		wantError(t, err, syscall.ECONNREFUSED)
		_, err = l.Accept()
		var e net.Error
		if temporary, ok := err.(interface{ Temporary() bool }); !errors.As(err, &e) || e.Timeout() || !ok || !temporary.Temporary() {
			t.Errorf("Accept: %v, want a temporary error", err)
		}
	}
}
