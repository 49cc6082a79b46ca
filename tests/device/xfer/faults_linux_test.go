package xfer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/xfer"
)

var (
	_ = rdmatest.Test(TestXferFlap, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
	_ = rdmatest.Test(TestXferInterfaceDown, rdmatest.OnRXE, rdmatest.OnMLX5Eth)
	_ = rdmatest.Test(TestXferImpaired, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
)

// A stream writes into the peer's memory, with a notification, again and again, and compares.
type stream struct {
	*pair
	t            testing.TB
	mine, theirs *xfer.Memory
	b            xfer.Batch
	turn         int
}

// newStream makes a stream over some devices, or rdmatest.Devices, and a log of what becomes of its queue pairs.
func newStream(t *testing.T, n int, devices ...string) *stream {
	o := small
	o.Devices = devices
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	p := newPair(t, o)
	s := &stream{pair: p, t: t, mine: memory(t, p.a, n, 1), theirs: memory(t, p.b, n, 2)}
	s.b.Write(grant(t, s.theirs.All(), xfer.Write), s.mine.All())
	return s
}

// next writes once. Each byte must be right when the notification comes.
func (s *stream) next(ctx context.Context, when string) {
	s.t.Helper()
	s.turn++
	rdmatest.Fill(s.mine.Bytes(), s.turn)
	s.b.Notify(uint64(s.turn))
	if err := s.peer.Do(ctx, &s.b); err != nil {
		s.t.Fatalf("%s: %v", when, err)
	}
	if note := rdmatest.Must(s.pair.b.Notified(ctx))(s.t); note.Tag != uint64(s.turn) {
		s.t.Fatalf("%s: notification %d, want %d", when, note.Tag, s.turn)
	}
	same(s.t, when, s.theirs.Bytes(), s.mine.Bytes())
}

// written returns what the lane for long operations on each rail has written.
func (s *stream) written() map[string]uint64 {
	n := make(map[string]uint64)
	for _, l := range s.peer.Stats().Lanes {
		if l.Class == "bulk" {
			n[l.Rail] = l.Written
		}
	}
	return n
}

// flap takes a rail down and up while the stream goes on: no error reaches the caller, every byte is right, and both
// rails carry something again.
func (s *stream) flap(rail int, set func(up bool)) {
	s.t.Helper()
	ctx := limited(s.t)
	name := s.a.Rails()[rail]
	restore := sync.OnceFunc(func() { set(true) })
	s.t.Cleanup(restore)
	// Down in the middle of a batch.
	s.turn++
	rdmatest.Fill(s.mine.Bytes(), s.turn)
	s.b.Notify(uint64(s.turn))
	rdmatest.Check(s.t, s.peer.Start(&s.b))
	set(false)
	rdmatest.Check(s.t, s.b.Wait(ctx))
	rdmatest.Must(s.pair.b.Notified(ctx))(s.t)
	same(s.t, name+" goes down", s.theirs.Bytes(), s.mine.Bytes())
	eventually(s.t, "the rail's lanes are down", func() bool {
		for _, l := range s.peer.Stats().Lanes {
			if l.Rail == name && l.Up {
				return false
			}
		}
		return true
	})
	s.carry(ctx, name+" is down", 2*time.Second)
	restore()
	eventually(s.t, "the port is up", func() bool { return s.a.Stats().Rails[rail].Up && s.pair.b.Stats().Rails[rail].Up })
	start, before := time.Now(), s.written()
	eventually(s.t, "both rails carry again", func() bool {
		s.next(ctx, name+" is up again")
		for rail, n := range s.written() {
			if n == before[rail] {
				return false
			}
		}
		return true
	})
	s.t.Logf("%s: both rails carry again %v after the port is up", name, time.Since(start))
}

// carry writes three times, and in the nightly run for a time.
func (s *stream) carry(ctx context.Context, when string, atNight time.Duration) {
	s.t.Helper()
	for i, start := 0, time.Now(); i < 3 || nightly() && time.Since(start) < atNight; i++ {
		s.next(ctx, when)
	}
}

// flaps takes one rail and then the other one down and up while the stream goes on: at night for 2 s in each 30 s.
func (s *stream) flaps(set func(rail int, up bool)) {
	s.t.Helper()
	s.up(s.t)
	s.next(limited(s.t), "at first")
	rounds := 2
	if nightly() {
		rounds = 4
	}
	for i := range rounds {
		ctx := limited(s.t)
		s.carry(ctx, "before", 14*time.Second)
		s.flap(i%2, func(up bool) { set(i%2, up) })
		s.carry(ctx, "afterwards", 14*time.Second)
	}
}

// TestXferFlap: cables are pulled in the middle of a write, and plugged in again.
func TestXferFlap(t *testing.T) {
	newStream(t, 256<<10).flaps(func(rail int, up bool) {
		rdmatest.Check(t, control.Request{Do: "port", HCA: rail, Up: up}.Ask())
	})
}

// TestXferInterfaceDown: a network interface is taken down in the middle of a write, and up again.
func TestXferInterfaceDown(t *testing.T) {
	devices := rdmatest.Devices[:]
	if rdmatest.KindOf() == rdmatest.RXE { // whose two interfaces are the ends of one cable
		devices = []string{rdmatest.Device, "xferflap"}
		rdmatest.ExtraRXE(t, devices[1], "xferflap", "192.168.78.1")
	}
	newStream(t, 256<<10, devices...).flaps(func(rail int, up bool) {
		rdmatest.Command(t, "ip link set "+rdmatest.NetDev(devices[rail])+" "+map[bool]string{true: "up", false: "down"}[up])
	})
}

// TestXferImpaired: packets are lost, overtaken and repeated, and each byte is right.
func TestXferImpaired(t *testing.T) {
	s := newStream(t, 128<<10)
	s.up(t)
	rdmatest.Check(t, control.Request{Do: "faults", Drop: 0.01, Reorder: 0.02, Duplicate: 0.01}.Ask())
	t.Cleanup(func() { rdmatest.Check(t, control.Request{Do: "faults"}.Ask()) })
	rounds := 8
	if nightly() {
		rounds = 2000
	}
	for range rounds {
		s.next(limited(t), "with a bad network")
	}
	back := memory(t, s.a, 128<<10, 9)
	rdmatest.Check(t, s.peer.Read(limited(t), back.All(), grant(t, s.theirs.All(), xfer.Read)))
	same(t, "read", back.Bytes(), s.theirs.Bytes())
}
