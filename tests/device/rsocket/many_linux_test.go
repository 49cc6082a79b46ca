package rsocket

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

// small are the smallest buffers and queues.
var small = rsocket.Options{SendBuffer: 1, RecvBuffer: 1, SendQueue: 1, RecvQueue: 1}

var _ = rdmatest.Test(TestThousandConnections, rdmatest.Long)

// TestThousandConnections makes a thousand connections on rxe, or ten thousand with
// GOVERBS_LONG. Idle connections cost only a little memory. Then all carry data both ways at
// the same time, and some are aborted.
func TestThousandConnections(t *testing.T) {
	n := 1000
	if rdmatest.KindOf() == rdmatest.MLX5 {
		n = 200 // the adapter's processor is emulated, and therefore slow
	}
	if long() {
		// Both ends are in this process, which is allowed as many mappings as the ends of one side need.
		n = 10_000
		rdmatest.Check(t, os.WriteFile("/proc/sys/vm/max_map_count", []byte("262144"), 0))
	}
	checkLeaks(t)
	l := listen(t, small)
	first, second := connectMany(t, l, small, 1) // its goroutines serve all connections
	goroutines, before, memory := runtime.NumGoroutine(), threads(t), resident(t)
	clients, servers := connectMany(t, l, small, n)
	if more := runtime.NumGoroutine() - goroutines; more > 10 {
		t.Errorf("%d idle connections have %d goroutines", n, more)
	}
	if more := threads(t) - before; more > 10 {
		t.Errorf("%d idle connections have %d threads", n, more)
	}
	if each := (resident(t) - memory) / (2 * n); each > 80<<10 {
		t.Errorf("an end of an idle connection takes %d bytes", each)
	} else {
		t.Logf("an end of an idle connection takes %d bytes", each)
	}
	aborted := func(i int) bool { return i%10 == 0 }
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 4))
			want := make([]byte, 1+rnd.IntN(3000))
			newStream(byte(i)).Read(want)
			deadline := time.Now().Add(4 * rdmatest.Patience)
			for _, c := range []*rsocket.Conn{clients[i], servers[i]} {
				if err := c.SetDeadline(deadline); err != nil {
					t.Error(err)
				}
			}
			wg.Go(func() {
				defer servers[i].Close()
				if _, err := io.Copy(servers[i], servers[i]); err != nil && !aborted(i) {
					t.Error(err)
				}
			})
			if _, err := clients[i].Write(want); err != nil {
				t.Error(err)
			}
			got := make([]byte, len(want))
			if m, err := io.ReadFull(clients[i], got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("connection %d: %d of %d bytes came back, %v, or others", i, m, len(want), err)
			}
			if aborted(i) {
				clients[i].SetLinger(0)
			}
			if err := clients[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	closed(t, first[0])
	closed(t, second[0])
}

// TestCloseMany: few threads release connections that are closed in rapid succession.
func TestCloseMany(t *testing.T) {
	checkLeaks(t)
	l := listen(t, small)
	clients, servers := connectMany(t, l, small, 60)
	before := threads(t)
	for i := range clients {
		rdmatest.Check(t, clients[i].Close())
		rdmatest.Check(t, servers[i].Close())
	}
	closed(t, l)
	settle(t)
	if more := threads(t) - before; more > 30 {
		t.Errorf("closing %d connections takes %d more threads", 2*len(clients), more)
	}
}

// connectMany makes connections and returns both ends of each, which the end of the test closes.
func connectMany(t testing.TB, l *rsocket.Listener, o rsocket.Options, n int) (clients, servers []*rsocket.Conn) {
	t.Helper()
	accepted := make(map[string]*rsocket.Conn)
	failed := make(chan error, 1)
	go func() {
		for range n {
			// Each connection has a deadline of its own: the time of all depends on the
			// machine.
			c, err := (*rsocket.Conn)(nil), l.SetDeadline(time.Now().Add(rdmatest.Patience))
			if err == nil {
				c, err = l.AcceptConn()
			}
			if err != nil {
				failed <- err
				return
			}
			accepted[c.RemoteAddr().String()] = c
		}
		failed <- nil
	}()
	d := rsocket.Dialer{Options: o, Timeout: rdmatest.Patience}
	for range n {
		clients = append(clients, rdmatest.Must(d.Dial("tcp", l.Addr().String()))(t).(*rsocket.Conn))
	}
	rdmatest.Check(t, <-failed)
	for _, c := range clients {
		servers = append(servers, accepted[c.LocalAddr().String()])
	}
	t.Cleanup(func() {
		for _, c := range append(clients, servers...) {
			closed(t, c)
		}
	})
	return clients, servers
}

var _ = rdmatest.Test(TestMemory, rdmatest.Long)

// TestMemory measures the memory of an end of an idle connection of the default sizes. 256
// KiB are the buffers, and most of the rest are the queues.
func TestMemory(t *testing.T) {
	checkLeaks(t)
	const n = 30
	l := listen(t, rsocket.Options{})
	connectMany(t, l, rsocket.Options{}, 1)
	before := resident(t)
	connectMany(t, l, rsocket.Options{}, n)
	if each := (resident(t) - before) / (2 * n); each > 768<<10 {
		t.Errorf("an end of an idle connection takes %d bytes", each)
	} else {
		t.Logf("%d bytes", each)
	}
}

// resident returns how much memory this process has, after a garbage collection.
func resident(t testing.TB) int {
	t.Helper()
	runtime.GC()
	return int(rdmatest.RSS(t))
}

// threads returns how many threads this process has.
func threads(t testing.TB) int {
	t.Helper()
	return len(rdmatest.Must(os.ReadDir("/proc/self/task"))(t))
}
