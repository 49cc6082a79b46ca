package valkeyrdma

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// host is the address of package verbstest's first device.
const host = "192.0.2.1"

// listen listens until the test ends.
func listen(t testing.TB, lc ListenConfig) *Listener {
	t.Helper()
	l := rdmatest.Must(lc.Listen(t.Context(), "tcp", host+":0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// pair returns both ends of a connection.
func pair(t testing.TB, o Options) (client, server *Conn) {
	t.Helper()
	l := listen(t, ListenConfig{Options: o})
	d := Dialer{Options: o}
	client = rdmatest.Must(d.Dial("tcp", l.Addr().String()))(t).(*Conn)
	server = rdmatest.Must(l.Accept())(t).(*Conn)
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}

// TestStream: bytes arrive in order, in both directions at once, in pieces of all sizes, through buffers that are much
// smaller. Close sends what was written, and then the peer reads io.EOF.
func TestStream(t *testing.T) {
	verbstest.New(t)
	for _, o := range []Options{{}, {SendBuffer: 4 << 10, RecvBuffer: 8 << 10}} {
		client, server := pair(t, o)
		const total = 3 << 20
		var tasks sync.WaitGroup
		for i, c := range []*Conn{client, server} {
			data := make([]byte, total)
			for j := range data {
				data[j] = byte(j*(i+3) ^ j>>8)
			}
			peer := []*Conn{server, client}[i]
			tasks.Go(func() { // c writes
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				for b := data; len(b) > 0; {
					n := min(len(b), 1+rnd.IntN(1<<rnd.IntN(18)))
					if _, err := c.Write(b[:n]); err != nil {
						t.Error(err)
						return
					}
					b = b[n:]
				}
			})
			tasks.Go(func() { // its peer reads
				got := make([]byte, total)
				if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%v, or other bytes", err)
				}
			})
		}
		tasks.Wait()
		last := bytes.Repeat([]byte("last"), 500)
		rdmatest.Must(client.Write(last))(t)
		rdmatest.Close(t, client)
		if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, last) {
			t.Errorf("after Close, %d bytes, %v", len(got), err)
		}
		if _, err := server.Write(last); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write to a peer that has closed: %v", err)
		}
	}
}

// TestShortMessages: a client never has more messages under way than the server has receives, though each is a byte and
// the server's device would refuse one more: it asks the server meanwhile.
func TestShortMessages(t *testing.T) {
	n := verbstest.New(t)
	client, server := pair(t, Options{})
	var questions atomic.Int64
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Opcode == verbs.OpSend {
			questions.Add(1)
		}
		return verbstest.Fault{}
	})
	const total = 5 * receives
	wrote := make(chan error)
	go func() {
		for i := range total {
			if _, err := client.Write([]byte{byte(i)}); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	// The server doesn't call anything: the client has to stop before the receives are taken.
	rdmatest.UntilNot(t, "the client writes", func() bool { return !client.link.Wr.Waiting() })
	client.link.Waits.Mu.Lock()
	if sent := client.flow.sent; sent > receives {
		t.Errorf("%d messages of %d receives are sent", sent, receives)
	}
	client.link.Waits.Mu.Unlock()
	b := make([]byte, total)
	rdmatest.Must(io.ReadFull(server, b))(t)
	rdmatest.Check(t, <-wrote)
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, b[i])
		}
	}
	if questions.Load() < total/receives {
		t.Errorf("%d commands for %d messages", questions.Load(), total)
	}
}

// TestDeadlines: deadlines end reads and writes that wait, and later calls, until they are changed.
func TestDeadlines(t *testing.T) {
	verbstest.New(t)
	client, server := pair(t, Options{SendBuffer: 4 << 10, RecvBuffer: 8 << 10})
	rdmatest.Check(t, client.SetDeadline(time.Now().Add(time.Millisecond)))
	for range 2 {
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		if n, err := client.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n > 8<<10 {
			t.Errorf("write: %d bytes, %v", n, err)
		}
	}
	rdmatest.Check(t, client.SetDeadline(time.Time{}))
	go server.Write([]byte("x"))
	rdmatest.Must(io.ReadFull(client, make([]byte, 1)))(t)
}

// TestNoAllocations: Read and Write allocate nothing. One goroutine has both ends here, so the half that is registered
// takes all bytes.
func TestNoAllocations(t *testing.T) {
	verbstest.New(t)
	client, server := pair(t, Options{RecvBuffer: 8 << 20})
	for _, size := range []int{16, 10_000} {
		b := make([]byte, size)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := client.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("a write and a read of %d bytes allocate %v times", size, n)
		}
	}
}

// TestNothingLeft: nothing is left of connections that either side has closed, or that were lost.
func TestNothingLeft(t *testing.T) {
	n := verbstest.New(t)
	l := listen(t, ListenConfig{})
	for i := range 3 {
		client := rdmatest.Must(Dial("tcp", l.Addr().String()))(t)
		server := rdmatest.Must(l.Accept())(t)
		switch i {
		case 0:
			rdmatest.Close(t, client)
		case 1:
			rdmatest.Close(t, server)
		case 2:
			n.SetFault(func(verbstest.Request) verbstest.Fault { return verbstest.Fail(verbs.WCRetryExcErr) })
			rdmatest.Must(client.Write([]byte("x")))(t)
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a connection is lost: %v", err)
			}
			n.SetFault(nil)
		}
		_ = client.Close()
		_ = server.Close()
		if err := client.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("close again: %v", err)
		}
	}
	rdmatest.Close(t, l)
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("close the listener again: %v", err)
	}
	rdmatest.Until(t, func() string {
		if left := append(n.Left(), netconn.Held()...); len(left) > 0 {
			return left[0]
		}
		return ""
	})
}
