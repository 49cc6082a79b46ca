package xfer_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// A middlebox forwards TCP connections. It may forget them, so that only the side that has dialed notices.
type middlebox struct {
	net.Listener
	conns chan net.Conn // of those that have dialed
}

func newMiddlebox(t testing.TB, to string) *middlebox {
	b := &middlebox{rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t), make(chan net.Conn, 10)}
	t.Cleanup(func() { b.Close() })
	go func() {
		for {
			near, err := b.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { far.Close() })
			go io.Copy(far, near)
			go io.Copy(near, far)
			b.conns <- near
		}
	}()
	return b
}

// forget ends a connection for the side that has dialed.
func (b *middlebox) forget() { (<-b.conns).(*net.TCPConn).Close() }

// A program has lost its peer, which has not noticed, and dials again. From then on nothing of the earlier
// connection arrives, though a packet of it is on its way.
func TestNoGhostAfterDial(t *testing.T) {
	o := quick
	o.Liveness = 0 // a long time
	m := twoEngines(t, 1, o)
	box := newMiddlebox(t, m.l.Addr().String())
	ctx := patient(t)
	rdmatest.Check(t, m.peer.Close())
	eventually(t, "the first peer is gone", func() bool { return len(m.b.Peers()) == 0 })
	m.peer = rdmatest.Must(m.a.Dial(ctx, box.Addr().String()))(t)
	old := m.b.Peers()[0]
	mine, theirs := memory(t, m.a, 4096, 1), memory(t, m.b, 4096, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	m.net.SetFault(verbstest.Nth(1, verbstest.Late()))
	fill(mine.Bytes(), 8)
	var b xfer.Batch
	b.Write(remote, mine.All())
	rdmatest.Check(t, m.peer.Start(&b))
	box.forget()
	if err := b.Wait(ctx); err != nil && !errors.Is(err, xfer.ErrPeerLost) {
		t.Errorf("the peer is lost: %v", err)
	}
	<-m.peer.Done()
	again := rdmatest.Must(m.a.Dial(ctx, box.Addr().String()))(t)
	select {
	case <-old.Done():
	default:
		t.Error("the peer has the earlier connection")
	}
	fill(theirs.Bytes(), 9)
	m.net.SetFault(nil) // the late write arrives
	want := make([]byte, 4096)
	if fill(want, 9); !bytes.Equal(theirs.Bytes(), want) {
		t.Error("a request of the earlier connection has arrived")
	}
	fill(mine.Bytes(), 3)
	rdmatest.Check(t, again.Write(ctx, remote, mine.All()))
	if !bytes.Equal(theirs.Bytes(), mine.Bytes()) {
		t.Error("wrong bytes after Dial")
	}
}
