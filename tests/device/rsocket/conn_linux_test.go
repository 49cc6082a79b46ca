package rsocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// TestStreams sends random pieces both ways at once, with buffers and queues from the smallest to
// large ones.
func TestStreams(t *testing.T) {
	for _, o := range []rsocket.Options{
		{},
		{SendBuffer: 1, RecvBuffer: 1, SendQueue: 1, RecvQueue: 1},
		{SendBuffer: 1 << 20, RecvBuffer: 1 << 20, SendQueue: 1024, RecvQueue: 1024, Inline: 200, Spin: -1},
		{RecvBuffer: 8 << 10, SendQueue: 1024, RecvQueue: 16},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			if overIWARP() {
				o.Inline = min(o.Inline, 80) // siw has no more
			}
			client, server := pair(t, o)
			total := 4 << 20
			if 0 < o.RecvBuffer && o.RecvBuffer <= 8<<10 { // it goes 4 KiB at a time
				total = 512 << 10
			}
			if testing.Short() {
				total /= 8
			}
			for _, most := range []int{100, 3000, 300_000} {
				both(t, client, server, min(total, 1000*most), most)
			}
		})
	}
}

// both sends n bytes each way at once, in pieces of up to most bytes, and compares their checksums.
func both(t *testing.T, client, server *rsocket.Conn, n, most int) {
	t.Helper()
	var wg sync.WaitGroup
	oneWay := func(from, to *rsocket.Conn, seed byte) {
		s := newStream(seed)
		var sum uint32
		var readErr error
		read := make(chan struct{})
		wg.Go(func() {
			defer close(read)
			sum, readErr = checksum(to, n, most, rand.New(rand.NewPCG(uint64(seed), 2)))
		})
		wg.Go(func() {
			err := s.send(from, n, most, rand.New(rand.NewPCG(uint64(seed), 1)))
			if <-read; err != nil || readErr != nil || sum != s.sum.Sum32() {
				t.Errorf("pieces of %d: sent %#x, %v, received %#x, %v", most, s.sum.Sum32(), err, sum, readErr)
			}
		})
	}
	oneWay(client, server, byte(most))
	oneWay(server, client, byte(most+1))
	wg.Wait()
}

var _ = rdmatest.Test(TestGigabyte, rdmatest.Long)

// TestGigabyte sends 1 GiB each way, without GOVERBS_LONG a thirty-second part of it.
func TestGigabyte(t *testing.T) {
	n := 1 << 30
	if !long() {
		n /= 32
	}
	client, server := pair(t, rsocket.Options{})
	rdmatest.Check(t, client.SetDeadline(time.Time{}))
	rdmatest.Check(t, server.SetDeadline(time.Time{}))
	both(t, client, server, n, 1<<20)
}

// TestSocketAddresses: addresses are TCP addresses, and each side's local address is the
// other's remote address.
func TestSocketAddresses(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	for name, a := range map[string][2]net.Addr{
		"client's": {client.LocalAddr(), server.RemoteAddr()},
		"server's": {server.LocalAddr(), client.RemoteAddr()},
	} {
		x, ok := a[0].(*net.TCPAddr)
		y, also := a[1].(*net.TCPAddr)
		if !ok || !also || x.String() != y.String() || !x.IP.Equal(net.ParseIP(host)) || x.Port == 0 {
			t.Errorf("the %s address is %v here and %v there", name, a[0], a[1])
		}
	}
}

// TestHalfClose: after CloseWrite, the peer reads the remaining bytes and io.EOF, and can
// still send.
func TestHalfClose(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	for _, step := range []struct{ from, to *rsocket.Conn }{{client, server}, {server, client}} {
		want := bytes.Repeat([]byte("half"), 10_000)
		rdmatest.Must(step.from.Write(want))(t)
		rdmatest.Check(t, step.from.CloseWrite())
		if _, err := step.from.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write after CloseWrite: %v", err)
		}
		if got, err := io.ReadAll(step.to); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes, %v; want %d", len(got), err, len(want))
		}
	}
}

// TestCloseRead: after CloseRead, reads end, and the peer can continue to send.
func TestCloseRead(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	blocked := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 1))
		blocked <- err
	}()
	rdmatest.Check(t, server.CloseRead())
	if err := <-blocked; err != io.EOF {
		t.Errorf("the read ended with %v", err)
	}
	// The bytes exceed the ring. A call must drop them: here, the end of a write does.
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 1<<20))
		sent <- err
	}()
	for over := false; !over; {
		select {
		case err := <-sent:
			rdmatest.Check(t, err)
			over = true
		default:
			rdmatest.Must(server.Write([]byte("still here")))(t)
			rdmatest.Must(io.ReadFull(client, make([]byte, 10)))(t)
		}
	}
}

// TestDeadlines: deadlines end pending calls and refuse later ones, until they are reset.
func TestDeadlines(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	fill := func() error { // until the peer's ring and the send buffer are full
		for {
			if _, err := client.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
		}
	}
	read := func() error {
		_, err := client.Read(make([]byte, 1))
		return err
	}
	for name, call := range map[string]struct {
		do  func() error
		set func(time.Time) error
	}{
		"read":  {read, client.SetReadDeadline},
		"write": {fill, client.SetWriteDeadline},
	} {
		timeout := func(when string, err error) {
			t.Helper()
			var e net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &e) || !e.Timeout() {
				t.Errorf("%s, %s: %v", name, when, err)
			}
		}
		rdmatest.Check(t, call.set(time.Time{}))
		blocked := make(chan error)
		go func() { blocked <- call.do() }()
		rdmatest.Check(t, call.set(time.Now().Add(time.Millisecond)))
		timeout("while it waits", <-blocked)
		timeout("after the deadline", call.do())
		rdmatest.Check(t, call.set(time.Now().Add(time.Hour)))
		go func() { blocked <- call.do() }()
		rdmatest.Check(t, call.set(time.Unix(1, 0)))
		timeout("moved to the past", <-blocked)
	}
	// The connection still works.
	rdmatest.Check(t, client.SetDeadline(time.Time{}))
	go io.Copy(io.Discard, server)
	rdmatest.Must(client.Write(make([]byte, 1<<20)))(t)
	rdmatest.Must(server.Write([]byte("x")))(t)
	rdmatest.Check(t, read())
}

// TestCloseEndsCalls: Close ends pending calls, and refuses later ones. The peer reads
// io.EOF.
func TestCloseEndsCalls(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	calls := make(chan error, 2)
	go func() {
		_, err := client.Read(make([]byte, 1))
		calls <- err
	}()
	go func() {
		for {
			if _, err := client.Write(make([]byte, 64<<10)); err != nil {
				calls <- err
				return
			}
		}
	}()
	// Once the ring is full, the write waits.
	rdmatest.Must(io.ReadFull(server, make([]byte, 1)))(t)
	rdmatest.Check(t, client.Close())
	for range 2 {
		wantError(t, <-calls, net.ErrClosed)
	}
	for name, err := range map[string]error{
		"read":             second(client.Read(make([]byte, 1))),
		"read of nothing":  second(client.Read(nil)),
		"write":            second(client.Write([]byte("x"))),
		"write of nothing": second(client.Write(nil)),
		"close":            client.Close(),
		"close write":      client.CloseWrite(),
		"close read":       client.CloseRead(),
		"set deadline":     client.SetDeadline(time.Time{}),
		"set linger":       client.SetLinger(1),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := io.Copy(io.Discard, server); err != nil {
		t.Errorf("the peer's read ended with %v", err)
	}
	_, err := server.Write([]byte("x"))
	wantError(t, err, syscall.ECONNRESET)
}

func second(_ int, err error) error { return err }

// TestAbort: with SetLinger(0) the peer learns that the connection has broken.
func TestAbort(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	blocked := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 1))
		blocked <- err
	}()
	rdmatest.Check(t, client.SetLinger(0))
	rdmatest.Check(t, client.Close())
	wantError(t, <-blocked, syscall.ECONNRESET)
	_, err := server.Write([]byte("x"))
	wantError(t, err, syscall.ECONNRESET)
	if err := server.CloseWrite(); !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("CloseWrite after the end: %v", err)
	}
}

// TestCloseAtOnce: Close doesn't wait for a peer that reads nothing, unless SetLinger demands
// it. Written data still arrives.
func TestCloseAtOnce(t *testing.T) {
	checkLeaks(t)
	l := listen(t, small)
	closing := func(linger int) (*rogue, time.Duration) {
		r := newRogue(t, l.Addr(), 0)
		rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
		c := accept(t, l).(*rsocket.Conn)
		rdmatest.Must(c.Write([]byte("late")))(t)
		rdmatest.Check(t, c.SetLinger(linger))
		start := time.Now()
		rdmatest.Check(t, c.Close())
		return r, time.Since(start)
	}
	var took []time.Duration
	for range 5 {
		r, d := closing(-1)
		took = append(took, d)
		r.receive(t, 64)
		imm := r.next(t)
		for imm>>29 == 4 { // credits
			imm = r.next(t)
		}
		if imm != 4 {
			t.Errorf("after Close the peer gets %#x, want a message of 4 bytes", imm)
		}
	}
	_, waited := closing(1)
	t.Logf("Close took %v, and %v with SetLinger(1)", took, waited)
	if waited < time.Second || slices.Min(took) > time.Second {
		t.Errorf("Close took %v, and %v with SetLinger(1)", took, waited)
	}
}

// TestCloseKeepsData: data written before Close arrives.
func TestCloseKeepsData(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{})
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for i := range rounds {
		client, server := connect(t, l, rsocket.Options{})
		want := bytes.Repeat([]byte{byte(i)}, 100_000)
		rdmatest.Must(client.Write(want))(t)
		rdmatest.Check(t, client.Close())
		if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes, %v; want %d", len(got), err, len(want))
		}
		rdmatest.Check(t, server.Close())
	}
}

// TestWriteBuffers sends buffers of all sizes as one.
func TestWriteBuffers(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	var bufs net.Buffers
	var want []byte
	for _, n := range []int{0, 1, 63, 64, 65, 0, 0, 5000, 2, 200_000, 0} {
		b := make([]byte, n)
		newStream(byte(n)).Read(b)
		bufs = append(bufs, b)
		want = append(want, b...)
	}
	go func() {
		if n, err := client.WriteBuffers(&bufs); n != int64(len(want)) || err != nil || len(bufs) != 0 {
			t.Errorf("wrote %d of %d bytes, %d buffers are left: %v", n, len(want), len(bufs), err)
		}
		client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v; want %d", len(got), err, len(want))
	}
	// After a deadline, the unsent bytes remain in the buffers.
	rdmatest.Check(t, server.SetWriteDeadline(time.Unix(1, 0)))
	bufs = net.Buffers{make([]byte, 10), make([]byte, 20)}
	if n, err := server.WriteBuffers(&bufs); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || len(bufs) != 2 || len(bufs[0]) != 10 {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
}

// TestCopy calls io.Copy from and to a connection.
func TestCopy(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	const n = 1 << 20
	s := newStream(1)
	sum := make(chan uint32)
	go func() {
		echo := newStream(0)
		if m, err := io.Copy(echo.sum, server); m != n || err != nil {
			t.Errorf("copied %d bytes: %v", m, err)
		}
		sum <- echo.sum.Sum32()
	}()
	if m, err := io.Copy(client, io.LimitReader(s, n)); m != n || err != nil {
		t.Errorf("copied %d bytes: %v", m, err)
	}
	rdmatest.Check(t, client.CloseWrite())
	if got := <-sum; got != s.sum.Sum32() {
		t.Errorf("the sum is %#x, want %#x", got, s.sum.Sum32())
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// inTime calls a function, and fails the test if it hangs.
func inTime(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(rdmatest.Patience):
		t.Fatal(what + " hangs")
	}
}

// TestCopyOfItself copies from a connection to itself, as an echo server does, before and
// after Close.
func TestCopyOfItself(t *testing.T) {
	client, _ := pair(t, rsocket.Options{})
	inTime(t, "io.Copy", func() {
		_, err := io.Copy(client, readFunc(func(b []byte) (int, error) {
			closed(t, client)
			return client.Read(b)
		}))
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("the copy ended with %v", err)
		}
	})
}

// TestWriteBesideCopy: a copy whose source has no data doesn't block other writes.
func TestWriteBesideCopy(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	source, feed := io.Pipe()
	copied := make(chan error)
	go func() {
		_, err := io.Copy(client, source)
		copied <- err
	}()
	rdmatest.Must(feed.Write([]byte("a")))(t)
	rdmatest.Must(io.ReadFull(server, make([]byte, 1)))(t)
	inTime(t, "Write", func() {
		if _, err := client.Write([]byte("b")); err != nil {
			t.Error(err)
		}
	})
	rdmatest.Must(io.ReadFull(server, make([]byte, 1)))(t)
	rdmatest.Check(t, feed.Close())
	rdmatest.Check(t, <-copied)
}

// TestCopyFull: a copy of exactly as many bytes as fit ends, although there is no room for
// more.
func TestCopyFull(t *testing.T) {
	client, _ := pair(t, rsocket.Options{})
	const n = 128 << 10
	if m, err := io.Copy(client, io.LimitReader(newStream(1), n)); m != n || err != nil {
		t.Errorf("copied %d bytes: %v", m, err)
	}
}

// TestListener tests a listener's deadline, end and errors.
func TestListener(t *testing.T) {
	checkLeaks(t)
	l := rdmatest.Must(rsocket.Listen("tcp", host+":0"))(t)
	addr := l.Addr().String()
	_, err := rsocket.Listen("tcp", addr)
	wantError(t, err, syscall.EADDRINUSE)
	_, err = rsocket.Listen("udp", addr)
	if !errors.As(err, new(net.UnknownNetworkError)) {
		t.Errorf("network udp: %v", err)
	}
	rdmatest.Check(t, l.SetDeadline(time.Unix(1, 0)))
	_, err = l.Accept()
	wantError(t, err, os.ErrDeadlineExceeded)
	const waiting = 3
	blocked := make(chan error)
	for _, end := range []struct {
		how  func() error
		want error
	}{
		{func() error { return l.SetDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		{l.Close, net.ErrClosed},
	} {
		rdmatest.Check(t, l.SetDeadline(time.Time{}))
		for range waiting {
			go func() {
				_, err := l.Accept()
				blocked <- err
			}()
		}
		time.Sleep(time.Millisecond) // so that they probably wait
		rdmatest.Check(t, end.how())
		for range waiting {
			wantError(t, <-blocked, end.want)
		}
	}
	wantError(t, l.Close(), net.ErrClosed)
	_, err = rsocket.Dial("tcp", addr)
	wantError(t, err, syscall.ECONNREFUSED)
}

// TestAnyAddress: a listener on all addresses accepts IPv4 clients.
func TestAnyAddress(t *testing.T) {
	checkLeaks(t)
	l := rdmatest.Must(rsocket.Listen("tcp", ":0"))(t)
	defer closed(t, l)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	client := rdmatest.Must(rsocket.Dial("tcp", net.JoinHostPort(host, port)))(t)
	defer closed(t, client)
	rdmatest.Check(t, l.SetDeadline(time.Now().Add(rdmatest.Patience)))
	server := rdmatest.Must(l.Accept())(t)
	defer closed(t, server)
	if at := server.LocalAddr().(*net.TCPAddr); at.IP.String() != host {
		t.Errorf("accepted at %v", at)
	}
}

// TestLeavesAtOnce: the accepting side may close before the other side has sent anything.
func TestLeavesAtOnce(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{})
	for name, leave := range map[string]func(*rsocket.Conn) error{"Close": (*rsocket.Conn).Close, "CloseWrite": (*rsocket.Conn).CloseWrite} {
		t.Run(name, func(t *testing.T) {
			left := make(chan *rsocket.Conn)
			go func() {
				defer close(left)
				server, err := l.AcceptConn()
				if err == nil {
					err = leave(server)
				}
				if err != nil {
					t.Error(err)
					return
				}
				left <- server
			}()
			client := rdmatest.Must(rsocket.Dial("tcp", l.Addr().String()))(t)
			defer closed(t, client)
			rdmatest.Check(t, client.SetDeadline(time.Now().Add(rdmatest.Patience)))
			_, err := client.Read(make([]byte, 1))
			wantError(t, err, io.EOF)
			if server := <-left; server != nil {
				closed(t, server)
			}
		})
	}
}

// TestNotAccepted: connections that Accept has not returned end with the listener.
func TestNotAccepted(t *testing.T) {
	checkLeaks(t)
	l := rdmatest.Must(rsocket.Listen("tcp", host+":0"))(t)
	c := rdmatest.Must(rsocket.Dial("tcp", l.Addr().String()))(t)
	rdmatest.Check(t, l.Close())
	rdmatest.Check(t, c.SetReadDeadline(time.Now().Add(rdmatest.Patience)))
	_, err := c.Read(make([]byte, 1))
	wantError(t, err, syscall.ECONNRESET)
	rdmatest.Check(t, c.Close())
}

// TestNoAllocations: Read and Write allocate nothing.
func TestNoAllocations(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	rdmatest.Check(t, client.SetDeadline(time.Time{}))
	rdmatest.Check(t, server.SetDeadline(time.Time{}))
	for _, size := range []int{16, 10_000} {
		out, in := make([]byte, size), make([]byte, size)
		if n := testing.AllocsPerRun(100, func() {
			_, err := client.Write(out)
			for n := 0; n < size && err == nil; {
				var m int
				m, err = server.Read(in)
				n += m
			}
			if err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("a write and a read of %d bytes allocate %v times", size, n)
		}
	}
}

// TestManyConnections connects, sends, closes and aborts, from many goroutines, and leaves nothing: 10,000 times
// with GOVERBS_LONG.
func TestManyConnections(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{SendBuffer: 8 << 10, RecvBuffer: 8 << 10, SendQueue: 16, RecvQueue: 16})
	rounds, workers := 50, 8
	if testing.Short() {
		rounds = 4
	}
	if long() {
		rounds = 10_000 / workers
	}
	go func() {
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 3))
			for range rounds {
				c, err := (&rsocket.Dialer{Options: rsocket.Options{SendBuffer: 8 << 10, RecvBuffer: 8 << 10, SendQueue: 16, RecvQueue: 16}, Timeout: rdmatest.Patience}).Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				b := make([]byte, 1+rnd.IntN(20_000))
				newStream(byte(w)).Read(b)
				abort := rnd.IntN(3) == 0
				c.SetDeadline(time.Now().Add(rdmatest.Patience))
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					if _, err := c.Write(b); err != nil && !abort {
						t.Error(err)
					}
					c.(*rsocket.Conn).CloseWrite()
				}()
				if abort {
					c.Read(make([]byte, 1))
					c.(*rsocket.Conn).SetLinger(0)
				} else if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, b) {
					t.Errorf("%d of %d bytes came back: %v", len(got), len(b), err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				<-sent
			}
		})
	}
	wg.Wait()
}

// TestWriteMR sends registered memory. When WriteMR returns, the memory is free, even after
// an error.
func TestWriteMR(t *testing.T) {
	client, server := pair(t, rsocket.Options{})
	const n = 300_000
	mr := rdmatest.Must(client.PD().AllocMR(n+2, verbs.MROptions{}))(t)
	t.Cleanup(func() { rdmatest.Close(t, mr) }) // before the connection
	newStream(5).Read(mr.Bytes())
	want := bytes.Clone(mr.Bytes()[1 : n+1])
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if m, err := client.WriteMR(mr, 1, n); m != n || err != nil {
			t.Errorf("sent %d of %d bytes: %v", m, n, err)
		}
		clear(mr.Bytes())
	}()
	got := make([]byte, n)
	if m, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d of %d bytes, %v, or others", m, n, err)
	}
	<-sent
	rdmatest.Check(t, client.SetWriteDeadline(time.Unix(1, 0)))
	if m, err := client.WriteMR(mr, 0, 1); m != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: sent %d bytes, %v", m, err)
	}
	// The peer reads nothing, so the ring fills up. The sent bytes have arrived, and the
	// connection continues.
	var m int
	var err error
	for wait := 100 * time.Millisecond; m == 0 && wait < rdmatest.Patience; wait *= 2 { // a busy machine may send nothing for a while
		rdmatest.Check(t, client.SetWriteDeadline(time.Now().Add(wait)))
		m, err = client.WriteMR(mr, 0, n)
	}
	if m == 0 || m == n || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("into a full ring: sent %d bytes, %v", m, err)
	}
	rdmatest.Must(io.ReadFull(server, make([]byte, m)))(t)
	rdmatest.Check(t, client.SetWriteDeadline(time.Now().Add(rdmatest.Patience)))
	rdmatest.Must(client.WriteMR(mr, 0, 100))(t)
	rdmatest.Must(io.ReadFull(server, make([]byte, 100)))(t)
}
