package xfer_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// machines are two machines with some rails each, and a peer of the first one's: the second one.
type machines struct {
	net  *verbstest.Network
	a, b *xfer.Engine
	l    *xfer.Listener
	peer *xfer.Peer
}

// twoEngines opens two engines with the given number of rails each. a has dialed b.
func twoEngines(t testing.TB, rails int, o xfer.Options) *machines {
	t.Helper()
	var addrs []netip.Addr
	for i := range byte(2 * rails) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, 1 + i}))
	}
	m := &machines{net: verbstest.New(t, addrs...)}
	m.a = m.engine(t, 0, rails, o)
	m.b = m.engine(t, rails, rails, o)
	m.l = rdmatest.Must(m.b.Listen(t.Context(), "127.0.0.1:0"))(t)
	m.peer = rdmatest.Must(m.a.Dial(t.Context(), m.l.Addr().String()))(t)
	return m
}

// engine opens an engine on some of the devices.
func (m *machines) engine(t testing.TB, first, n int, o xfer.Options) *xfer.Engine {
	t.Helper()
	for i := range n {
		o.Devices = append(o.Devices[:i:i], m.net.Device(first+i).Name())
	}
	e := rdmatest.Must(xfer.Open(o))(t)
	t.Cleanup(func() { rdmatest.Check(t, e.Close()) })
	return e
}

// memory allocates memory, and fills it with bytes that differ from place to place.
func memory(t testing.TB, e *xfer.Engine, n int, seed byte) *xfer.Memory {
	t.Helper()
	m := rdmatest.Must(e.Alloc(n))(t)
	fill(m.Bytes(), seed)
	return m
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i*7>>3) + byte(i>>12) + seed
	}
}

func grant(t testing.TB, p xfer.Piece, a xfer.Access) *xfer.Grant {
	t.Helper()
	return rdmatest.Must(p.Grant(xfer.GrantOptions{Access: a}))(t)
}

// allUp starts the peer's lanes, and waits until all have a queue pair.
func (m *machines) allUp(t testing.TB) {
	t.Helper()
	rdmatest.Check(t, m.peer.Do(t.Context(), &xfer.Batch{}))
	eventually(t, "all lanes have a queue pair", func() bool {
		lanes := m.peer.Stats().Lanes
		return len(lanes) > 0 && !slices.ContainsFunc(lanes, func(l xfer.LaneStats) bool { return !l.Up })
	})
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(start) > rdmatest.Patience {
			t.Fatal("it never happens: " + what)
		}
	}
}

// patient is a context for waits that must end.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
	t.Cleanup(cancel)
	return ctx
}
