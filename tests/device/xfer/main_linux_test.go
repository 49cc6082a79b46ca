// Package xfer tests moving memory between machines in the rig: package xfer and ibv xfer over two
// rails, while links go down, packets are lost, and peers are killed or hostile.
package xfer

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

func TestMain(m *testing.M) {
	if os.Getenv(ownerVar) != "" {
		owner()
		return
	}
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)
}

// A pair is two engines on this machine. Each of the devices is a rail of both. a has dialed b.
type pair struct {
	a, b *xfer.Engine
	l    *xfer.Listener
	peer *xfer.Peer
}

// small slices spread also short operations over both rails.
var small = xfer.Options{SliceBytes: 16 << 10, SmallBytes: 1 << 10}

func open(t testing.TB, o xfer.Options) *xfer.Engine {
	t.Helper()
	if o.Devices == nil {
		o.Devices = rdmatest.Devices[:]
	}
	e := rdmatest.Must(xfer.Open(o))(t)
	t.Cleanup(func() { rdmatest.Close(t, e) })
	return e
}

func newPair(t testing.TB, o xfer.Options) *pair {
	t.Helper()
	rdmatest.CheckLeaks(t)
	p := &pair{a: open(t, o), b: open(t, o)}
	p.l = rdmatest.Must(p.b.Listen(t.Context(), "127.0.0.1:0"))(t)
	p.peer = rdmatest.Must(p.a.Dial(t.Context(), p.l.Addr().String()))(t)
	return p
}

// up waits until each lane has a queue pair to the same rail of the peer's.
func (p *pair) up(t testing.TB) {
	t.Helper()
	rdmatest.Check(t, p.peer.Do(t.Context(), new(xfer.Batch)))
	eventually(t, "each lane is up", func() bool {
		return !slices.ContainsFunc(p.peer.Stats().Lanes, func(l xfer.LaneStats) bool { return !l.Up || l.Theirs != l.Rail })
	})
}

// memory allocates memory with a pattern.
func memory(t testing.TB, e *xfer.Engine, n, seed int) *xfer.Memory {
	t.Helper()
	m := rdmatest.Must(e.Alloc(n))(t)
	rdmatest.Fill(m.Bytes(), seed)
	return m
}

func grant(t testing.TB, p xfer.Piece, a xfer.Access) xfer.Remote {
	t.Helper()
	return rdmatest.Must(p.Grant(xfer.GrantOptions{Access: a}))(t).Remote()
}

func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Fatalf("%s: %d bytes, and %d; they differ from byte %d on", what, len(got), len(want), i)
	}
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

// limited is a context for waits that must end.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// nightly reports whether the tests are to take much longer than in a run of all tests.
func nightly() bool { return os.Getenv("GOVERBS_LONG") != "" }
