package xfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/provider/efa"
	_ "github.com/goverbs/goverbs/provider/siw"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/xfer"
)

var (
	everywhere = []rdmatest.Need{rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.OnSIW, rdmatest.OnEFA}

	_ = rdmatest.Test(TestTransportMoves, everywhere...)
	_ = rdmatest.Test(TestTransportSurvives, everywhere...)
	_ = rdmatest.Test(TestManyPeers, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
	_ = rdmatest.Test(TestThousandPeers, rdmatest.OnMLX5, rdmatest.LongOn("mlx5"))
)

// A way is a transport between two devices of the rig.
type way struct {
	name string
	o    xfer.Options
}

// ways returns the transports of the rig's devices.
func ways() []way {
	rc := way{"rc", xfer.Options{ManyPeers: -1}}
	switch rdmatest.KindOf() {
	case rdmatest.MLX5:
		return []way{rc, {"dc", xfer.Options{ManyPeers: 1}}}
	case rdmatest.SIW:
		return []way{{"iwarp", xfer.Options{}}}
	case rdmatest.EFA:
		return []way{{"srd", xfer.Options{}}}
	}
	return []way{rc}
}

// open opens an engine on one of the rig's two devices. rxe's and siw's reach themselves only.
func (w way) open(t testing.TB, device int) *xfer.Engine {
	t.Helper()
	if kind := rdmatest.KindOf(); kind == rdmatest.RXE || kind == rdmatest.SIW {
		device = 0
	}
	o := w.o
	o.Devices, o.SliceBytes, o.SmallBytes = []string{rdmatest.Devices[device]}, 16<<10, 1<<10
	e := rdmatest.Must(xfer.Open(o))(t)
	t.Cleanup(func() { rdmatest.Check(t, e.Close()) })
	return e
}

// each runs a test on each transport. EFA's driver of Linux 6.1 has no RDMA writes, and its devices are
// left out.
func each(t *testing.T, test func(t *testing.T, w way)) {
	if rdmatest.KindOf() == rdmatest.EFA && !rdmatest.Kernel(t).AtLeast(6, 12) {
		if _, err := xfer.Open(xfer.Options{}); !errors.Is(err, verbs.ErrNoDevice) || !strings.Contains(err.Error(), rdmatest.Device) {
			t.Errorf("without RDMA writes: %v", err)
		}
		return
	}
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			rdmatest.CheckLeaks(t)
			if rdmatest.KindOf() == rdmatest.EFA {
				rdmatest.Check(t, control.Request{Do: "faults", Reorder: 0.5, Drop: 0.02, Jitter: int64(time.Millisecond)}.Ask())
				t.Cleanup(func() { rdmatest.Check(t, control.Request{Do: "faults", Reorder: 0.2}.Ask()) })
			}
			test(t, w)
		})
	}
}

func dial(t testing.TB, from, to *xfer.Engine) *xfer.Peer {
	t.Helper()
	l := rdmatest.Must(to.Listen(t.Context(), "127.0.0.1:0"))(t)
	return rdmatest.Must(from.Dial(t.Context(), l.Addr().String()))(t)
}

func alloc(t testing.TB, e *xfer.Engine, n int, seed int) *xfer.Memory {
	t.Helper()
	m := rdmatest.Must(e.Alloc(n))(t)
	rdmatest.Fill(m.Bytes(), seed)
	return m
}

func remote(t testing.TB, m *xfer.Memory) xfer.Remote {
	t.Helper()
	return rdmatest.Must(m.All().Grant(xfer.GrantOptions{Access: xfer.Read | xfer.Write}))(t).Remote()
}

// patient is a context for waits that must end.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// long returns how often to repeat something: more often with GOVERBS_LONG.
func long(short, full int) int {
	if os.Getenv("GOVERBS_LONG") != "" {
		return full
	}
	return short
}

// check fails the test unless the lanes use a transport.
func (w way) check(t testing.TB, p *xfer.Peer) {
	t.Helper()
	for _, l := range p.Stats().Lanes {
		if l.Up && l.Transport != w.name {
			t.Errorf("the rail %s is connected over %s, not %s", l.Rail, l.Transport, w.name)
		}
	}
}

// Writes and reads of all lengths move the right bytes, in both directions at a time, and a notification
// comes when all bytes of its batch are there, whatever overtakes what.
func TestTransportMoves(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := w.open(t, 0), w.open(t, 1)
		there := dial(t, a, b)
		ctx := patient(t)
		const n = 200_000
		atA, atB := alloc(t, a, 2*n, 1), alloc(t, b, 2*n, 2)
		toA, toB := remote(t, atA), remote(t, atB)
		// One half of each memory is for one direction.
		move := func(p *xfer.Peer, e *xfer.Engine, mine, theirs *xfer.Memory, to xfer.Remote, half int) error {
			rnd := rand.New(rand.NewPCG(1, uint64(half)))
			var batch xfer.Batch
			for i := range long(8, 200) {
				rdmatest.Fill(mine.Bytes()[half*n:][:n], 3*i+half)
				batch.Reset()
				for at := 0; at < n; { // parts of all lengths
					k := min(n-at, 1+rnd.IntN(100), 1+rnd.IntN(2000))
					if rnd.IntN(3) == 0 || n-at < 300 {
						k = min(n-at, 1+rnd.IntN(60_000))
					}
					if at > n/2 {
						k = n - at
					}
					batch.Write(to.Slice(half*n+at, k), mine.Slice(half*n+at, k))
					at += k
				}
				batch.Notify(uint64(i))
				if err := p.Start(&batch); err != nil {
					return err
				}
				for {
					note, err := e.Notified(ctx)
					if err != nil {
						return err
					}
					if note.Tag == uint64(i) {
						break
					}
					return fmt.Errorf("notification %d in place of %d", note.Tag, i)
				}
				if !bytes.Equal(mine.Bytes()[half*n:][:n], theirs.Bytes()[half*n:][:n]) {
					return fmt.Errorf("round %d: the notification has come before the bytes", i)
				}
				if err := batch.Wait(ctx); err != nil {
					return err
				}
				rdmatest.Fill(theirs.Bytes()[half*n:][:n], 5*i+half)
				if err := p.Read(ctx, mine.Slice(half*n, n), to.Slice(half*n, n)); err != nil {
					return err
				}
				if !bytes.Equal(mine.Bytes()[half*n:][:n], theirs.Bytes()[half*n:][:n]) {
					return fmt.Errorf("round %d: wrong bytes were read", i)
				}
			}
			return nil
		}
		back := b.Peers()[0]
		results := make(chan error, 2)
		go func() { results <- move(there, b, atA, atB, toB, 0) }()
		go func() { results <- move(back, a, atB, atA, toA, 1) }()
		rdmatest.Check(t, errors.Join(<-results, <-results))
		w.check(t, there)
		w.check(t, back)
	})
}

// A peer that goes in the middle of a batch ends only what was for it. What goes to others, and to the
// peer after another Dial, arrives.
func TestTransportSurvives(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b, c := w.open(t, 0), w.open(t, 1), w.open(t, 1)
		toB, toC := dial(t, a, b), dial(t, a, c)
		ctx := patient(t)
		const n = 500_000
		mine, atB, atC := alloc(t, a, n, 1), alloc(t, b, n, 2), alloc(t, c, n, 3)
		var batches [2]xfer.Batch
		batches[0].Write(remote(t, atB), mine.All())
		batches[1].Write(remote(t, atC), mine.All())
		batches[1].Notify(1)
		rdmatest.Check(t, toB.Do(ctx, &batches[0]))
		rdmatest.Check(t, toB.Start(&batches[0]))
		rdmatest.Check(t, toC.Start(&batches[1]))
		b.Peers()[0].Close()
		if err := batches[0].Wait(ctx); err != nil && !errors.Is(err, xfer.ErrPeerLost) {
			t.Errorf("to the peer that has gone: %v", err)
		}
		rdmatest.Check(t, batches[1].Wait(ctx))
		rdmatest.Must(c.Notified(ctx))(t)
		if !bytes.Equal(mine.Bytes(), atC.Bytes()) {
			t.Error("wrong bytes at the other peer")
		}
		again := dial(t, a, b)
		rdmatest.Fill(mine.Bytes(), 9)
		rdmatest.Check(t, again.Do(ctx, &batches[0]))
		if !bytes.Equal(mine.Bytes(), atB.Bytes()) {
			t.Error("wrong bytes after another Dial")
		}
		// A revoked grant ends the batch that uses it, and nothing else.
		g := rdmatest.Must(atB.All().Grant(xfer.GrantOptions{Access: xfer.Write}))(t)
		batches[0].Reset()
		batches[0].Write(g.Remote(), mine.All())
		rdmatest.Check(t, again.Start(&batches[0]))
		rdmatest.Check(t, g.Revoke(ctx))
		rdmatest.Fill(atB.Bytes(), 4)
		want := slices.Clone(atB.Bytes())
		if err := batches[0].Wait(ctx); err != nil && !errors.Is(err, xfer.ErrRevoked) {
			t.Errorf("revoked: %v", err)
		}
		rdmatest.Check(t, again.Read(ctx, mine.All(), remote(t, atB)))
		if !bytes.Equal(mine.Bytes(), want) || !bytes.Equal(atB.Bytes(), want) {
			t.Error("bytes were written after Revoke")
		}
		w.check(t, again)
	})
}

// With many peers, an engine over DC has as many queue pairs that send as with few: links take turns.
func TestManyPeers(t *testing.T) { manyPeers(t, 40) }

// The nightly run has a thousand peers.
func TestThousandPeers(t *testing.T) { manyPeers(t, 1000) }

func manyPeers(t *testing.T, n int) {
	rdmatest.CheckLeaks(t)
	w := ways()[1]
	w.o.MaxPeers = n
	// The software adapter takes a second for the queue pairs of a few peers, and all ask at once.
	limit := time.Duration(1+n/100) * rdmatest.Patience
	w.o.Patience, w.o.Liveness = limit, limit
	// The kernel doesn't list queue pairs of DC. The adapters count them.
	had := [2]map[string]int{rdmatest.Must(control.Resources(0))(t), rdmatest.Must(control.Resources(1))(t)}
	more := func(hca int, kind string) int { return rdmatest.Must(control.Resources(hca))(t)[kind] - had[hca][kind] }
	a, b := w.open(t, 0), w.open(t, 1)
	l := rdmatest.Must(b.Listen(t.Context(), "127.0.0.1:0"))(t)
	const size = 40_000
	mine, theirs := alloc(t, a, size, 1), alloc(t, b, size*n, 2)
	within, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ctx, fail := context.WithCancelCause(within)
	defer fail(nil)
	peers := make([]*xfer.Peer, n)
	batches := make([]xfer.Batch, n)
	for i := range peers {
		peers[i] = rdmatest.Must(a.Dial(ctx, l.Addr().String()))(t)
		g := rdmatest.Must(theirs.Slice(i*size, size).Grant(xfer.GrantOptions{Access: xfer.Write}))(t)
		batches[i].Write(g.Remote(), mine.All())
		batches[i].Write(g.Remote().Slice(0, 10), mine.Slice(0, 10))
		batches[i].Notify(uint64(i))
	}
	for round := range 2 {
		rdmatest.Fill(mine.Bytes(), round)
		for i, p := range peers {
			rdmatest.Check(t, p.Start(&batches[i]))
		}
		go func() {
			for i := range batches {
				if err := batches[i].Wait(ctx); err != nil {
					fail(err)
				}
			}
		}()
		came := make(map[uint64]bool)
		for range peers {
			note, err := b.Notified(ctx)
			if err != nil {
				t.Fatalf("after %d notifications: %v, %v", len(came), err, context.Cause(ctx))
			}
			if i := int(note.Tag); came[note.Tag] || !bytes.Equal(theirs.Bytes()[i*size:][:size], mine.Bytes()) {
				t.Fatalf("notification %d has come twice, or before the bytes", i)
			}
			if came[note.Tag] = true; len(came)%100 == 0 {
				t.Logf("%d notifications", len(came)) // the runner ends a test that is silent for long
			}
		}
		for i := range batches {
			rdmatest.Check(t, batches[i].Wait(ctx))
		}
	}
	w.check(t, peers[n-1])
	// Eight send for each of the two classes, and paths begin at one more. Each peer has two DC targets.
	if initiators, targets := more(0, "qp"), more(1, "dct"); initiators != 17 || targets != 2*n {
		t.Errorf("%d peers, %d DC initiators, and %d DC targets", n, initiators, targets)
	}
	rdmatest.Check(t, a.Close())
	rdmatest.Check(t, b.Close())
}
