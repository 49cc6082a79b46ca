package xfer

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/xfer"
)

// A game has a seed decide what runs on two rails and what happens to them. A model knows each byte of each place.
// At least one rail is up at any time, so that nothing may fail.
type game struct {
	*pair
	t      *testing.T
	ctx    context.Context
	rnd    *rand.Rand
	places []place
	mine   *xfer.Memory
	theirs *xfer.Memory
	down   int // the rail that is down, or -1
}

const placeBytes = 96 << 10

// A place is a piece of the peer's memory, and as much of the own memory.
type place struct {
	mine, theirs xfer.Piece
	remote, word xfer.Remote
	model        []byte // what the peer's piece has, when nothing runs
	b            xfer.Batch
	running      bool
	reads        bool
	off, n       int
	count        uint64 // that the word has
}

func newGame(t *testing.T, seed uint64, o xfer.Options) *game {
	const places = 12
	g := &game{pair: newPair(t, o), t: t, ctx: t.Context(), rnd: rand.New(rand.NewPCG(seed, 43)), places: make([]place, places), down: -1}
	g.mine, g.theirs = memory(t, g.a, places*placeBytes, 1), memory(t, g.b, places*placeBytes, 2)
	words := rdmatest.Must(g.b.Alloc(8 * places))(t)
	remote, atomic := grant(t, g.theirs.All(), xfer.Read|xfer.Write), grant(t, words.All(), xfer.Atomic)
	for i := range g.places {
		off := i * placeBytes
		g.places[i] = place{
			mine: g.mine.Slice(off, placeBytes), theirs: g.theirs.Slice(off, placeBytes), remote: remote.Slice(off, placeBytes), word: atomic.Slice(8*i, 8),
		}
		g.places[i].model = append([]byte(nil), g.places[i].theirs.Bytes()...)
	}
	g.up(t)
	return g
}

// step does something.
func (g *game) step() {
	p := &g.places[g.rnd.IntN(len(g.places))]
	switch {
	case g.rnd.IntN(25) == 0:
		g.disturb()
	case p.running:
		g.finish(p)
	default:
		g.begin(p)
	}
}

// begin starts a read, a write, or an addition, perhaps with a notification.
func (g *game) begin(p *place) {
	p.b.Reset()
	size := 1 + g.rnd.IntN(300)
	if g.rnd.IntN(3) == 0 {
		size = 1 + g.rnd.IntN(placeBytes)
	}
	p.off, p.n, p.reads, p.running = g.rnd.IntN(placeBytes-size+1), size, g.rnd.IntN(2) == 0, true
	if p.reads {
		p.b.Read(p.mine.Slice(p.off, p.n), p.remote.Slice(p.off, p.n))
	} else {
		rdmatest.Fill(p.mine.Slice(p.off, p.n).Bytes(), g.rnd.IntN(1000))
		copy(p.model[p.off:], p.mine.Slice(p.off, p.n).Bytes())
		p.b.Write(p.remote.Slice(p.off, p.n), p.mine.Slice(p.off, p.n))
	}
	rdmatest.Check(g.t, g.peer.Start(&p.b))
}

// finish waits for what runs at a place, and compares all bytes there.
func (g *game) finish(p *place) {
	p.running = false
	if err := p.b.Wait(g.ctx); err != nil {
		g.t.Fatalf("%d bytes at %d, read: %v: %v", p.n, p.off, p.reads, err)
	}
	// A read of the whole place also sees what an acknowledged write has not stored yet.
	if p.reads {
		same(g.t, "read", p.mine.Slice(p.off, p.n).Bytes(), p.model[p.off:][:p.n])
	} else {
		rdmatest.Check(g.t, g.peer.Read(g.ctx, p.mine, p.remote))
		same(g.t, "written", p.mine.Bytes(), p.model)
	}
}

// disturb changes the state of a link or of the network, on adapters that take requests.
func (g *game) disturb() {
	if rdmatest.KindOf() != rdmatest.MLX5 {
		runtime.GC()
		return
	}
	switch {
	case g.down >= 0:
		g.port(g.down, true)
		g.down = -1
	case g.rnd.IntN(3) == 0:
		g.faults(control.Request{Drop: 0.01 * g.rnd.Float64(), Reorder: 0.02 * g.rnd.Float64(), Duplicate: 0.01 * g.rnd.Float64()})
	case g.rnd.IntN(2) == 0:
		g.faults(control.Request{})
	default:
		g.down = g.rnd.IntN(2)
		g.port(g.down, false)
	}
}

func (g *game) port(hca int, up bool) {
	rdmatest.Check(g.t, control.Request{Do: "port", HCA: hca, Up: up}.Ask())
}

func (g *game) faults(r control.Request) {
	r.Do = "faults"
	rdmatest.Check(g.t, r.Ask())
}

// calm ends all disturbances.
func (g *game) calm() {
	if rdmatest.KindOf() == rdmatest.MLX5 {
		g.faults(control.Request{})
		for hca := range 2 {
			g.port(hca, true)
		}
	}
}

// settle waits for all that runs, and compares all.
func (g *game) settle() {
	g.calm()
	g.down = -1
	g.up(g.t)
	for i := range g.places {
		p := &g.places[i]
		if p.running {
			g.finish(p)
		}
		// Additions are not disturbed: one that may have been carried out would fail.
		var was uint64
		p.b.Reset()
		p.b.FetchAdd(&was, p.word, 1)
		p.b.Notify(uint64(i))
		rdmatest.Check(g.t, g.peer.Do(g.ctx, &p.b))
		if was != p.count {
			g.t.Errorf("the word of place %d was %d, want %d", i, was, p.count)
		}
		p.count++
		rdmatest.Must(g.pair.b.Notified(g.ctx))(g.t)
		same(g.t, "in the end", p.theirs.Bytes(), p.model)
	}
}

// TestXferGame plays a game. With GOVERBS_LONG, it lasts an hour, in which neither memory nor goroutines grow.
func TestXferGame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv(rdmatest.SeedVariable); given != "" {
		seed = rdmatest.Must(strconv.ParseUint(given, 10, 64))(t)
	}
	t.Logf("%s=%d", rdmatest.SeedVariable, seed)
	o := small
	if seed%2 == 0 {
		o.Spin = 100 * time.Microsecond // those that wait take completions, too
	}
	g := newGame(t, seed, o)
	t.Cleanup(g.calm)
	if !nightly() {
		for range 300 {
			g.step()
		}
		g.settle()
		return
	}
	steps := 0
	play := func() {
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); steps++ {
			g.step()
		}
		g.settle()
		runtime.GC()
		t.Logf("%d steps, %d goroutines, %d bytes", steps, runtime.NumGoroutine(), rdmatest.RSS(t)) // the runner ends a test that is silent for long
	}
	play()
	memory, goroutines := rdmatest.RSS(t), runtime.NumGoroutine()
	for range 11 {
		play()
	}
	eventually(t, "there are as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
	if more := rdmatest.RSS(t) - memory; more > 16<<20 {
		t.Errorf("%d bytes more than before", more)
	}
}
