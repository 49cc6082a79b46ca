package rsocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

var _ = rdmatest.Test(TestRandomDeadlines, rdmatest.Long)

// TestRandomDeadlines runs many connections at once, whose reads and writes have random
// deadlines, and which end in random ways. Each byte is accounted for: all sent bytes arrive
// or, if the connection was aborted, the first of them. With GOVERBS_LONG, a thousand
// connections run at a time for ten minutes. Otherwise each goroutine makes one connection.
func TestRandomDeadlines(t *testing.T) {
	checkLeaks(t)
	n, end := 40, time.Now()
	if long() {
		n, end = 1000, end.Add(10*time.Minute)
	}
	l := listen(t, small)
	x := &exchanges{t: t, of: make(map[uint32]chan int)}
	var servers sync.WaitGroup
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			servers.Go(func() { x.serve(c) })
		}
	}()
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 6))
			for again := true; again && !t.Failed(); again = time.Now().Before(end) {
				x.play(l, rnd)
			}
		})
	}
	played := make(chan struct{})
	go func() {
		clients.Wait()
		close(played)
	}()
	for playing := true; playing; {
		select {
		case <-played:
			playing = false
		case <-time.After(time.Minute):
		}
		t.Logf("%d connections, %d refused, %d bytes sent, %d deadlines passed", x.number.Load(), x.refused.Load(), x.sent.Load(), x.expired.Load())
	}
	rdmatest.Check(t, l.Close())
	<-accepting
	servers.Wait()
}

// exchanges have the clients' and the servers' counts.
type exchanges struct {
	t                              *testing.T
	sent, expired, number, refused atomic.Int64

	mu sync.Mutex
	of map[uint32]chan int // by the client's number: how many bytes have arrived before an orderly end
}

const exchangeHead = 5 // a number of four bytes, and the seed of the stream

// play plays a client.
func (x *exchanges) play(l *rsocket.Listener, rnd *rand.Rand) {
	d := rsocket.Dialer{Options: small, Timeout: patience()}
	dialled, err := d.Dial("tcp", l.Addr().String())
	for errors.Is(err, syscall.ECONNREFUSED) { // the listener's backlog is full
		x.refused.Add(1)
		dialled, err = d.Dial("tcp", l.Addr().String())
	}
	if err != nil {
		x.t.Error(err)
		return
	}
	c := dialled.(*rsocket.Conn)
	number := uint32(x.number.Add(1))
	arrived := make(chan int, 1)
	x.mu.Lock()
	x.of[number] = arrived
	x.mu.Unlock()
	b := append(binary.BigEndian.AppendUint32(nil, number), byte(number))
	b = append(b, make([]byte, rnd.IntN(20_000))...)
	newStream(byte(number)).Read(b[exchangeHead:])
	for left := b; len(left) > 0; {
		m, err := x.hurry(rnd, c.SetWriteDeadline, func() (int, error) { return c.Write(left[:min(len(left), 1+rnd.IntN(8000))]) })
		if left = left[m:]; err != nil {
			x.t.Error(err)
			c.Close()
			return
		}
		x.sent.Add(int64(m))
	}
	abort := false
	switch rnd.IntN(3) {
	case 0: // Close
	case 1:
		if err := c.CloseWrite(); err != nil {
			x.t.Error(err)
		}
		m, err := x.hurry(rnd, c.SetReadDeadline, func() (int, error) { return c.Read(make([]byte, 1)) })
		for m == 0 && err == nil {
			m, err = x.hurry(rnd, c.SetReadDeadline, func() (int, error) { return c.Read(make([]byte, 1)) })
		}
		if m != 0 || err != io.EOF {
			x.t.Errorf("read %d bytes, %v, want the end", m, err)
		}
	case 2:
		abort = true
		c.SetLinger(0)
	}
	if err := c.Close(); err != nil {
		x.t.Error(err)
	}
	if !abort {
		select {
		case n := <-arrived:
			if n != len(b) {
				x.t.Errorf("%d of %d bytes have arrived", n, len(b))
			}
		case <-time.After(patience()): // the server has not even the number
			x.t.Errorf("none of %d bytes have arrived", len(b))
		}
	}
	x.mu.Lock()
	delete(x.of, number)
	x.mu.Unlock()
}

// serve plays a server: it compares the received bytes with the sent ones.
func (x *exchanges) serve(c *rsocket.Conn) {
	defer c.Close()
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 7))
	var all []byte
	var err error
	b := make([]byte, 4000)
	for err == nil {
		var m int
		m, err = x.hurry(rnd, c.SetReadDeadline, func() (int, error) { return c.Read(b[:1+rnd.IntN(len(b)-1)]) })
		all = append(all, b[:m]...)
	}
	if err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		x.t.Error(err)
	}
	if len(all) < exchangeHead {
		if err == io.EOF {
			x.t.Errorf("only %d bytes have arrived", len(all))
		}
		return
	}
	want := make([]byte, len(all)-exchangeHead)
	newStream(all[exchangeHead-1]).Read(want)
	if !bytes.Equal(all[exchangeHead:], want) {
		x.t.Errorf("%d bytes have arrived, others than were sent", len(all))
	}
	x.mu.Lock()
	arrived := x.of[binary.BigEndian.Uint32(all)]
	x.mu.Unlock()
	if arrived != nil {
		arrived <- len(all)
	}
}

// hurry makes a call with a random deadline, up to 50 ms. A passed deadline is not an error.
func (x *exchanges) hurry(rnd *rand.Rand, set func(time.Time) error, call func() (int, error)) (int, error) {
	if err := set(time.Now().Add(time.Duration(rnd.IntN(50_000)) * time.Microsecond)); err != nil {
		return 0, err
	}
	n, err := call()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.expired.Add(1)
		err = nil
	}
	return n, err
}
