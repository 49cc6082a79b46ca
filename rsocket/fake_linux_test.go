package rsocket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
)

// TestOwedTwice: credits that a peer is due stay due over an unrelated event. Each event arms for the next
// one, or the peer would never get the credits if no other call follows.
func TestOwedTwice(t *testing.T) {
	var arms atomic.Int64
	verbstest.New(t).SetRefusal(func(command string) syscall.Errno {
		if command == "req_notify_cq" {
			arms.Add(1)
		}
		return 0
	})
	const window, half = 16, 8
	l := listenFake(t, ListenConfig{Options: Options{RecvQueue: window}})
	r := newRogue(t, l, 0)
	defer r.close(t)
	d := r.data(64)
	check(t, r.connect(t, d.bytes()))
	c := ok(l.AcceptConn())(t)
	defer c.Close()
	for range controls { // as many messages with credits as may be in the queue
		for range half {
			r.write(t, []byte{1}, message(msgData, 1))
		}
		ok(io.ReadFull(c, make([]byte, half)))(t)
	}
	before := arms.Load()
	r.write(t, []byte{1}, message(msgData, 1))
	rdmatest.UntilNot(t, "the message has not been received", func() bool {
		c.link.Waits.Mu.Lock()
		defer c.link.Waits.Mu.Unlock()
		return c.in.received <= controls*half
	})
	if arms.Load() == before {
		t.Fatal("after an event that gives no credits, the next one is not asked for")
	}
	r.receive(t, window)
	rdmatest.UntilNot(t, "credits are missing", func() bool {
		c.link.Waits.Mu.Lock()
		defer c.link.Waits.Mu.Unlock()
		return c.in.granted != controls*half+1+window
	})
}

// TestSlotsAreFreed: the slots and bytes that a message takes in the send queue and the send buffer are freed,
// except those of messages after the last signaled one.
func TestSlotsAreFreed(t *testing.T) {
	verbstest.New(t)
	client, server := fakePair(t, Options{SendQueue: 20, SendBuffer: 1})
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		b := make([]byte, 1+rnd.IntN(2000))
		ok(client.Write(b))(t)
		ok(io.ReadFull(server, b))(t)
		client.link.Waits.Mu.Lock()
		client.process()
		slots, bytes := client.sender.Taken()
		client.link.Waits.Mu.Unlock()
		if slots != 0 || bytes != 0 {
			t.Fatalf("%d slots in the send queue and %d bytes of the send buffer are taken", slots, bytes)
		}
	}
}

// TestLinger: Close waits for SetLinger's seconds, and then drops the data that has not arrived. If the data
// arrives before, Close waits no longer.
func TestLinger(t *testing.T) {
	n := verbstest.New(t)
	hold := func(verbstest.Request) verbstest.Fault { return verbstest.Hold() }
	text := bytes.Repeat([]byte("linger"), 100)
	client, server := fakePair(t, Options{})
	check(t, client.SetLinger(1))
	n.SetFault(hold)
	ok(client.Write(text))(t)
	start := time.Now()
	check(t, client.Close())
	if took := time.Since(start); took < time.Second {
		t.Errorf("Close has waited for %v", took)
	}
	n.SetFault(nil)
	if got, err := io.ReadAll(server); len(got) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes that were dropped, %v", len(got), err)
	}
	check(t, server.Close())

	client, server = fakePair(t, Options{})
	check(t, client.SetLinger(3600))
	n.SetFault(hold)
	ok(client.Write(text))(t)
	closed := make(chan error)
	go func() { closed <- client.Close() }()
	n.SetFault(nil)
	check(t, <-closed)
	if got, err := io.ReadAll(server); !bytes.Equal(got, text) || err != nil {
		t.Errorf("read %d of %d bytes, %v", len(got), len(text), err)
	}
}

// TestNoFile: a client for which this side has no file descriptor left is rejected, and Accept returns the
// reason. Later clients are served.
func TestNoFile(t *testing.T) {
	n := verbstest.New(t)
	var refused atomic.Bool
	n.SetRefusal(func(command string) syscall.Errno {
		if command == "open uverbs1" && refused.CompareAndSwap(false, true) {
			return syscall.EMFILE
		}
		return 0
	})
	l := ok(Listen("tcp", ":0"))(t)
	defer l.Close()
	to := net.JoinHostPort(n.Device(1).Addr().String(), strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	d := Dialer{LocalAddr: netip.MustParseAddrPort(host + ":0")}
	if _, err := d.Dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the client: %v", err)
	}
	_, err := l.Accept()
	if e, ok := err.(interface{ Temporary() bool }); !ok || !e.Temporary() || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Accept: %v", err)
	}
	c := ok(d.Dial("tcp", to))(t)
	check(t, ok(l.Accept())(t).Close())
	check(t, c.Close())
}
