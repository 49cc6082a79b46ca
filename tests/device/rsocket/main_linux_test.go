// Package rsocket tests sockets over RDMA in the rig: package rsocket against itself, against
// rdma-core's rsocket programs, against programs written for TCP that librspreload runs over RDMA,
// and against peers that break the protocol.
package rsocket

import (
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"), rdmatest.AlsoVerbstest)
}

const host = "192.168.77.1" // the first device

// listen listens on a free port.
func listen(t testing.TB, o rsocket.Options) *rsocket.Listener {
	t.Helper()
	lc := rsocket.ListenConfig{Options: o}
	l := rdmatest.Must(lc.Listen(t.Context(), "tcp", host+":0"))(t)
	t.Cleanup(func() { closed(t, l) })
	return l
}

// connect returns both ends of a connection, which the end of the test closes.
func connect(t testing.TB, l *rsocket.Listener, o rsocket.Options) (client, server *rsocket.Conn) {
	t.Helper()
	d := rsocket.Dialer{Options: o, Timeout: rdmatest.Patience}
	client = rdmatest.Must(d.Dial("tcp", l.Addr().String()))(t).(*rsocket.Conn)
	t.Cleanup(func() { closed(t, client) })
	rdmatest.Check(t, l.SetDeadline(time.Now().Add(rdmatest.Patience)))
	server = rdmatest.Must(l.AcceptConn())(t)
	t.Cleanup(func() { closed(t, server) })
	for _, c := range []*rsocket.Conn{client, server} {
		rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	}
	return client, server
}

// pair is like connect, with a listener of its own. The test must leave nothing behind.
func pair(t testing.TB, o rsocket.Options) (client, server *rsocket.Conn) {
	t.Helper()
	checkLeaks(t)
	return connect(t, listen(t, o), o)
}

// closed closes a connection or a listener, unless the test did.
func closed(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// wantError fails the test unless err matches all of the errors.
func wantError(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

// A stream has random bytes, which depend on the seed, and the checksum of the bytes so far.
type stream struct {
	rnd *rand.ChaCha8
	sum hash.Hash32
}

func newStream(seed byte) *stream {
	return &stream{rand.NewChaCha8([32]byte{seed}), crc32.NewIEEE()}
}

func (s *stream) Read(b []byte) (int, error) {
	s.rnd.Read(b)
	return s.sum.Write(b)
}

// send writes n bytes of the stream in pieces of up to most bytes.
func (s *stream) send(w io.Writer, n, most int, rnd *rand.Rand) error {
	b := make([]byte, most)
	for n > 0 {
		piece := b[:min(n, 1+rnd.IntN(most))]
		s.Read(piece)
		if m, err := w.Write(piece); m != len(piece) || err != nil {
			return errors.Join(err, io.ErrShortWrite)
		}
		n -= len(piece)
	}
	return nil
}

// checksum reads n bytes in pieces of up to most bytes, and returns their checksum.
func checksum(r io.Reader, n, most int, rnd *rand.Rand) (uint32, error) {
	sum := crc32.NewIEEE()
	b := make([]byte, most)
	for n > 0 {
		m, err := r.Read(b[:min(n, 1+rnd.IntN(most))])
		sum.Write(b[:m])
		if n -= m; err != nil {
			return sum.Sum32(), err
		}
	}
	return sum.Sum32(), nil
}

// sumOf returns the checksum of the first n bytes of a stream.
func sumOf(t testing.TB, seed byte, n int) uint32 {
	t.Helper()
	s := newStream(seed)
	rdmatest.Must(io.CopyN(io.Discard, s, int64(n)))(t)
	return s.sum.Sum32()
}

// A sink counts the bytes that are written to it, and has their checksum.
type sink struct {
	mu  sync.Mutex
	n   int
	sum hash.Hash32
}

func newSink() *sink { return &sink{sum: crc32.NewIEEE()} }

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += len(b)
	return s.sum.Write(b)
}

func (s *sink) total() (n int, sum uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, s.sum.Sum32()
}

// long reports whether the tests run much longer than in a run of all tests.
func long() bool { return os.Getenv("GOVERBS_LONG") != "" }

// patience is how long a transfer may take.
func patience() time.Duration {
	if long() {
		return 10 * rdmatest.Patience
	}
	return rdmatest.Patience
}

// checkLeaks is like rdmatest.CheckLeaks, but waits for objects that are closed in the
// background: those of this test and of the tests before.
func checkLeaks(t testing.TB) {
	t.Helper()
	settle(t)
	rdmatest.CheckLeaks(t)
	t.Cleanup(func() { settle(t) })
}

// settle waits until this process has no file of a device or of the connection manager, as long as there are
// fewer and fewer objects.
func settle(t testing.TB) {
	t.Helper()
	left, deadline := "", time.Time{}
	for ; filesOfDevices(t) > 0; time.Sleep(20 * time.Millisecond) {
		if now := rdmatest.Resources(t); now != left {
			left, deadline = now, time.Now().Add(rdmatest.Patience)
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %s", left)
		}
	}
}

func filesOfDevices(t testing.TB) (n int) {
	t.Helper()
	for _, fd := range rdmatest.Must(os.ReadDir("/proc/self/fd"))(t) {
		// The list's own descriptor is closed by now.
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "infiniband") {
			n++
		}
	}
	return n
}
