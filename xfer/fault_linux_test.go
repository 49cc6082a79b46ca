package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// quick are options for tests with faults: devices give up soon.
var quick = xfer.Options{SliceBytes: 4096, SmallBytes: 100, AckTimeout: time.Millisecond}

// A rail goes down, on either side, and comes back. All batches succeed, and both rails are used
// again. The roles are exchanged, too.
func TestFlap(t *testing.T) {
	m := twoEngines(t, 2, quick)
	const n = 100_000
	mine, theirs := memory(t, m.a, n, 1), memory(t, m.b, n, 2)
	remote := grant(t, theirs.All(), xfer.Read|xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	carry := func(when string) {
		t.Helper()
		var b xfer.Batch
		b.Write(remote, mine.All())
		b.Notify(5)
		for i := range byte(3) {
			fill(mine.Bytes(), i)
			if err := m.peer.Do(ctx, &b); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			rdmatest.Must(m.b.Notified(ctx))(t)
			if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
				t.Fatalf("%s: wrong bytes", when)
			}
			rdmatest.Check(t, m.peer.Read(ctx, mine.All(), remote))
		}
	}
	for i := range 4 {
		d := m.net.Device(i)
		d.SetPort(false)
		carry(d.Name() + " is down")
		d.SetPort(true)
		eventually(t, "each rail is connected to its own of the peer's", func() bool {
			return !slices.ContainsFunc(m.peer.Stats().Lanes, func(l xfer.LaneStats) bool {
				return l.Theirs != map[string]string{"vt0/1": "vt2/1", "vt1/1": "vt3/1"}[l.Rail]
			})
		})
		before := m.peer.Stats()
		eventually(t, "both rails carry something", func() bool {
			carry(d.Name() + " is up again")
			for j, l := range m.peer.Stats().Lanes {
				if l.Class == "bulk" && l.Written == before.Lanes[j].Written {
					return false
				}
			}
			return true
		})
	}
	// Down in the middle of a batch, whose requests the device holds until then.
	for i := range 4 {
		d := m.net.Device(i)
		m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
			if r.Device == d.Name() || r.Seq > 3 {
				return verbstest.Hold()
			}
			return verbstest.Fault{}
		})
		fill(mine.Bytes(), 77)
		var b xfer.Batch
		b.Write(remote, mine.All())
		rdmatest.Check(t, m.peer.Start(&b))
		d.SetPort(false)
		m.net.SetFault(nil)
		rdmatest.Check(t, b.Wait(ctx))
		if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Fatal("wrong bytes")
		}
		d.SetPort(true)
		m.allUp(t)
	}
}

// A rail that comes back is connected again at once, at either end: when the port is up and, if that was too
// early, when it has an address. Nothing waits for the end of a pause.
func TestReturnWithoutPauses(t *testing.T) {
	xfer.OnlyNews(t)
	m := twoEngines(t, 2, quick)
	m.allUp(t)
	// until waits until the lanes of a rail are connected to a rail of the peer's, or not at all, and the others
	// to their own.
	until := func(what, rail, theirs string) {
		t.Helper()
		want := map[string]string{"vt0/1": "vt2/1", "vt1/1": "vt3/1"}
		want[rail] = theirs
		eventually(t, what, func() bool {
			return !slices.ContainsFunc(m.peer.Stats().Lanes, func(l xfer.LaneStats) bool { return l.Theirs != want[l.Rail] })
		})
	}
	for i := range 4 {
		d := m.net.Device(i)
		rail, theirs := []string{"vt0/1", "vt1/1"}[i%2], []string{"vt2/1", "vt3/1"}[i%2]
		d.SetPort(false)
		until("the port is down", rail, "")
		d.SetPort(true)
		until("the port is up", rail, theirs)

		m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
			if r.Device == d.Name() || r.To == d.Name() {
				return verbstest.Lose()
			}
			return verbstest.Fault{}
		})
		d.SetPort(false)
		until("the port is down again", rail, "")
		d.SetPort(true)
		eventually(t, "the rail's lanes have tried in vain", func() bool {
			return !slices.ContainsFunc(m.peer.Stats().Lanes, func(l xfer.LaneStats) bool {
				return l.Rail == rail && !strings.Contains(l.Error, verbs.WCRetryExcErr.String())
			})
		})
		m.net.SetFault(nil)
		d.SetAddr(netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}))
		until("the port has an address", rail, theirs)
	}
	// A lane that is connected to another rail of the peer's goes back.
	m.net.Device(2).SetPort(false)
	until("the peer's port is down", "vt0/1", "")
	m.net.Device(0).SetPort(false)
	eventually(t, "the port is down, too", func() bool { return !m.a.Stats().Rails[0].Up })
	m.net.Device(0).SetPort(true)
	until("the peer's port is still down", "vt0/1", "vt3/1")
	m.net.Device(2).SetPort(true)
	until("all ports are up", "vt0/1", "vt2/1")
}

// When both ends of a cable come up, one after the other, the lane waits for the second end.
func TestBothEndsReturn(t *testing.T) {
	xfer.OnlyPreferred(t)
	m := twoEngines(t, 2, quick)
	m.allUp(t)
	ours := func(is func(l xfer.LaneStats) bool) bool {
		return !slices.ContainsFunc(m.peer.Stats().Lanes, func(l xfer.LaneStats) bool { return l.Rail == "vt0/1" && !is(l) })
	}
	for _, i := range []int{2, 0} {
		m.net.Device(i).SetPort(false)
	}
	eventually(t, "both ports are down", func() bool { return ours(func(l xfer.LaneStats) bool { return l.Error == "the port is down" }) })
	m.net.Device(0).SetPort(true)
	eventually(t, "the lanes wait for the other end", func() bool {
		return ours(func(l xfer.LaneStats) bool { return l.Error == "the peer's rail is down" })
	})
	m.net.Device(2).SetPort(true)
	eventually(t, "all lanes are connected", func() bool { return ours(func(l xfer.LaneStats) bool { return l.Theirs == "vt2/1" }) })
}

// Without any rail, operations wait, and fail after a time with an error that says why. They succeed
// again when a rail is back.
func TestNoRail(t *testing.T) {
	o := quick
	o.Patience = 50 * time.Millisecond
	m := twoEngines(t, 1, o)
	mine, theirs := memory(t, m.a, 5000, 1), memory(t, m.b, 5000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	m.net.Device(1).SetPort(false)
	var b xfer.Batch
	b.Write(remote, mine.All())
	b.Notify(3)
	err := m.peer.Do(ctx, &b)
	var e *xfer.Error
	if !errors.Is(err, xfer.ErrNoRail) || !errors.As(err, &e) || e.Op != "write" || e.Peer != m.l.Addr().String() || !strings.Contains(err.Error(), "vt0/1") {
		t.Errorf("without a rail: %v", err)
	}
	m.net.Device(1).SetPort(true)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	if n := rdmatest.Must(m.b.Notified(ctx))(t); n.Tag != 3 {
		t.Errorf("notification %d", n.Tag)
	}
}

// A rail gets another address. Links to the old one are lost, and the next ones go to the new one, on
// either side.
func TestNewAddress(t *testing.T) {
	m := twoEngines(t, 1, quick)
	mine, theirs := memory(t, m.a, 50_000, 1), memory(t, m.b, 50_000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	for i := range byte(4) {
		d := m.net.Device(int(i % 2))
		d.SetAddr(netip.AddrFrom4([4]byte{192, 0, 2, 100 + i}))
		fill(mine.Bytes(), i)
		rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
		d.SetPort(false) // so that there are new links
		d.SetPort(true)
		rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
		if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Error("wrong bytes")
		}
		m.allUp(t)
	}
}

// Engines with different numbers of rails use all of them, whoever has more.
func TestUnequalRails(t *testing.T) {
	for _, rails := range [][2]int{{1, 3}, {3, 1}, {2, 3}} {
		var addrs []netip.Addr
		for i := range byte(rails[0] + rails[1]) {
			addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, 1 + i}))
		}
		m := &machines{net: verbstest.New(t, addrs...)}
		m.a, m.b = m.engine(t, 0, rails[0], quick), m.engine(t, rails[0], rails[1], quick)
		m.l = rdmatest.Must(m.b.Listen(t.Context(), "127.0.0.1:0"))(t)
		m.peer = rdmatest.Must(m.a.Dial(t.Context(), m.l.Addr().String()))(t)
		mine, theirs := memory(t, m.a, 200_000, 1), memory(t, m.b, 200_000, 2)
		m.allUp(t)
		var b xfer.Batch
		b.Write(grant(t, theirs.All(), xfer.Write).Remote(), mine.All())
		b.Notify(1)
		rdmatest.Check(t, m.peer.Do(patient(t), &b))
		rdmatest.Must(m.b.Notified(patient(t)))(t)
		if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Errorf("%d rails to %d: wrong bytes", rails[0], rails[1])
		}
		ours, others := make(map[string]bool), make(map[string]bool)
		for _, l := range m.peer.Stats().Lanes {
			if l.Class == "bulk" && l.Written > 0 {
				ours[l.Rail], others[l.Theirs] = true, true
			}
		}
		if len(ours) != rails[0] || len(others) != rails[1] {
			t.Errorf("%d rails to %d: %v carry bytes to %v", rails[0], rails[1], ours, others)
		}
		rdmatest.Check(t, errors.Join(m.a.Close(), m.b.Close(), m.net.Close()))
	}
}

// A path is dead though the ports at both ends are up. Lanes take other rails of the peer's, or leave
// the requests to others, and don't connect again and again.
func TestDeadPath(t *testing.T) {
	m := twoEngines(t, 2, quick)
	mine, theirs := memory(t, m.a, 50_000, 1), memory(t, m.b, 50_000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	write := func() {
		t.Helper()
		rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(0, 50), mine.Slice(0, 50)))
		rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	}
	write()
	dead := func(to string) {
		m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
			if r.Device == "vt0" && (to == "" || r.To == to) {
				return verbstest.Lose()
			}
			return verbstest.Fault{}
		})
	}
	lanes := func() (l []xfer.LaneStats) {
		return slices.DeleteFunc(m.peer.Stats().Lanes, func(l xfer.LaneStats) bool { return l.Rail != "vt0/1" })
	}
	dead("vt2")
	eventually(t, "lanes take another rail of the peer's", func() bool {
		write()
		return !slices.ContainsFunc(lanes(), func(l xfer.LaneStats) bool { return l.Theirs != "vt3/1" })
	})
	dead("")
	eventually(t, "a rail that reaches nothing isn't used", func() bool {
		write()
		return !slices.ContainsFunc(lanes(), func(l xfer.LaneStats) bool { return l.Up })
	})
	before := lanes()
	for range 100 {
		write()
	}
	for i, l := range lanes() {
		if l.Links != before[i].Links {
			t.Errorf("a lane has connected %d times to nothing", l.Links-before[i].Links)
		}
	}
	dead("none")
	m.allUp(t)
	rdmatest.Check(t, errors.Join(m.a.Close(), m.b.Close(), m.net.Close()))

	// When all paths are dead, there is no rail.
	o := quick
	o.Patience = 50 * time.Millisecond
	m = twoEngines(t, 1, o)
	mine, theirs = memory(t, m.a, 50_000, 1), memory(t, m.b, 50_000, 2)
	m.allUp(t)
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault { return verbstest.Lose() })
	if err := m.peer.Write(ctx, grant(t, theirs.All(), xfer.Write).Remote(), mine.All()); !errors.Is(err, xfer.ErrNoRail) {
		t.Errorf("all paths are dead: %v", err)
	}
}

// A batch that was canceled with an atomic operation in flight says, too, that it may have been carried
// out.
func TestCanceledAndUncertain(t *testing.T) {
	m := twoEngines(t, 1, quick)
	remote := grant(t, memory(t, m.b, 50, 2).All(), xfer.Atomic).Remote()
	ctx := patient(t)
	m.allUp(t)
	var b xfer.Batch
	b.FetchAdd(nil, remote.Slice(0, 8), 1)
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault { return verbstest.Hold() })
	rdmatest.Check(t, m.peer.Start(&b))
	b.Cancel()
	m.net.Device(0).SetPort(false)
	if err := b.Wait(ctx); !errors.Is(err, xfer.ErrCanceled) || !errors.Is(err, xfer.ErrUncertain) {
		t.Errorf("canceled in flight: %v", err)
	}
	m.net.SetFault(nil)
	m.net.Device(0).SetPort(true)
}

// Requests fail, lose packets, and find no receive. What can be repaired is; what can't be ends with
// an error that has the completion's status.
func TestFailures(t *testing.T) {
	m := twoEngines(t, 2, quick)
	const n = 60_000
	mine, theirs := memory(t, m.a, n, 1), memory(t, m.b, n, 2)
	remote := grant(t, theirs.All(), xfer.Read|xfer.Write|xfer.Atomic).Remote()
	ctx := patient(t)
	m.allUp(t)
	for i, fault := range []verbstest.Fault{
		verbstest.Fail(verbs.WCRetryExcErr), verbstest.Fail(verbs.WCGeneralErr), verbstest.Fail(verbs.WCRNRRetryExcErr),
		verbstest.Fail(verbs.WCRemOpErr), verbstest.Fail(verbs.WCWRFlushErr), verbstest.Lose(), verbstest.NotReady(),
	} {
		m.net.SetFault(verbstest.Nth(5, fault))
		fill(mine.Bytes(), byte(i))
		var b xfer.Batch
		b.Write(remote, mine.All())
		b.Notify(uint64(i))
		if err := m.peer.Do(ctx, &b); err != nil {
			t.Fatalf("fault %d: %v", i, err)
		}
		if got := rdmatest.Must(m.b.Notified(ctx))(t); got.Tag != uint64(i) || !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Fatalf("fault %d: notification %d, or wrong bytes", i, got.Tag)
		}
		m.net.SetFault(nil)
		m.allUp(t)
	}
	for _, status := range []verbs.WCStatus{verbs.WCRemAccessErr, verbs.WCLocProtErr, verbs.WCRemInvReqErr} {
		m.net.SetFault(verbstest.Nth(1, verbstest.Fail(status)))
		err := m.peer.Read(ctx, mine.All(), remote)
		var e *xfer.Error
		var wc *verbs.WCError
		if !errors.As(err, &e) || e.Status != status || e.Op != "read" || !strings.HasPrefix(e.Rail, "vt") || !errors.As(err, &wc) || wc.Status != status {
			t.Errorf("%v: %v", status, err)
		}
		m.net.SetFault(nil)
		m.allUp(t)
	}
	// A part that fails again and again isn't tried for ever.
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Opcode == verbs.OpRDMARead && r.Length == 50 {
			return verbstest.Fail(verbs.WCRetryExcErr)
		}
		return verbstest.Fault{}
	})
	var e *xfer.Error
	if err := m.peer.Read(ctx, mine.Slice(0, 50), remote.Slice(0, 50)); !errors.As(err, &e) || e.Status != verbs.WCRetryExcErr {
		t.Errorf("reads fail always: %v", err)
	}
	m.net.SetFault(nil)
	m.allUp(t)
	// An atomic operation that may have been carried out is not repeated.
	m.net.SetFault(verbstest.Nth(1, verbstest.Fail(verbs.WCRetryExcErr)))
	var b xfer.Batch
	b.FetchAdd(nil, remote.Slice(0, 8), 1)
	if err := m.peer.Do(ctx, &b); !errors.Is(err, xfer.ErrUncertain) {
		t.Errorf("an atomic operation without an answer: %v", err)
	}
	m.net.SetFault(nil)
	m.allUp(t)
	// A notification has arrived, though the sender has no answer: it comes once all the same.
	for i := range uint64(20) {
		m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
			if r.Opcode == verbs.OpSend && i%2 == 0 {
				return verbstest.LoseAnswer()
			}
			return verbstest.Fault{}
		})
		b.Reset()
		b.Notify(100 + i)
		rdmatest.Check(t, m.peer.Start(&b))
		got := rdmatest.Must(m.b.Notified(ctx))(t)
		m.net.SetFault(nil)
		rdmatest.Check(t, b.Wait(ctx))
		if got.Tag != 100+i {
			t.Fatalf("notification %d, want %d", got.Tag, 100+i)
		}
	}
}

// A packet of a rail that has failed doesn't arrive later: its queue pair is closed at the peer
// before the slice is sent again.
func TestNoGhost(t *testing.T) {
	m := twoEngines(t, 2, quick)
	mine, theirs := memory(t, m.a, 4096, 1), memory(t, m.b, 4096, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	m.net.SetFault(verbstest.Nth(1, verbstest.Late()))
	fill(mine.Bytes(), 8)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	fill(theirs.Bytes(), 9)
	m.net.SetFault(nil) // the late write arrives
	want := make([]byte, 4096)
	if fill(want, 9); !bytes.Equal(theirs.Bytes(), want) {
		t.Error("a request that was sent again has arrived later")
	}
}

// After Revoke nothing is written, though requests are under way, and other grants aren't harmed.
func TestRevoke(t *testing.T) {
	for _, shared := range []bool{false, true} {
		o := quick
		o.SharedKeys = shared
		m := twoEngines(t, 2, o)
		const n = 100_000
		mine, theirs, others := memory(t, m.a, n, 1), memory(t, m.b, n, 2), memory(t, m.b, n, 3)
		g, other := grant(t, theirs.All(), xfer.Write), grant(t, others.All(), xfer.Write)
		ctx := patient(t)
		m.allUp(t)
		rdmatest.Check(t, m.peer.Write(ctx, g.Remote(), mine.All()))
		rdmatest.Check(t, m.peer.Write(ctx, other.Remote(), mine.All()))

		// Polite: the peer stops, and no queue pair is lost.
		links := func() (n uint64) {
			for _, l := range m.peer.Stats().Lanes {
				n += l.Links
			}
			return n
		}
		before := links()
		rdmatest.Check(t, g.Revoke(ctx))
		rdmatest.Check(t, g.Revoke(ctx))
		if err := m.peer.Write(ctx, g.Remote(), mine.All()); !errors.Is(err, xfer.ErrRevoked) {
			t.Errorf("after Revoke: %v", err)
		}
		if links() != before {
			t.Error("a queue pair was lost")
		}

		// In the middle of a batch. The peer can't stop in time: its requests are held.
		g = grant(t, theirs.All(), xfer.Write)
		rdmatest.Check(t, m.peer.Write(ctx, g.Remote(), mine.All()))
		m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
			if r.Opcode == verbs.OpRDMAWrite {
				return verbstest.Hold()
			}
			return verbstest.Fault{}
		})
		fill(mine.Bytes(), 8)
		var b, innocent xfer.Batch
		b.Write(g.Remote(), mine.All())
		innocent.Write(other.Remote(), mine.All())
		rdmatest.Check(t, m.peer.Start(&b))
		rdmatest.Check(t, m.peer.Start(&innocent))
		short, cancel := context.WithCancel(ctx)
		cancel()
		rdmatest.Check(t, g.Revoke(short))
		fill(theirs.Bytes(), 9)
		m.net.SetFault(nil)
		if err := b.Wait(ctx); !errors.Is(err, xfer.ErrRevoked) {
			t.Errorf("revoked meanwhile: %v", err)
		}
		rdmatest.Check(t, innocent.Wait(ctx))
		want := make([]byte, n)
		if fill(want, 9); !bytes.Equal(theirs.Bytes(), want) {
			t.Error("bytes were written after Revoke")
		}
		if !bytes.Equal(others.Bytes(), mine.Bytes()) {
			t.Error("the other batch is not complete")
		}
		rdmatest.Check(t, errors.Join(m.a.Close(), m.b.Close(), m.net.Close()))
	}
}

// A peer that goes away fails what is under way, and a new one at the same address knows nothing of
// what was granted before.
func TestRestart(t *testing.T) {
	m := twoEngines(t, 1, quick)
	mine, theirs := memory(t, m.a, 50_000, 1), memory(t, m.b, 50_000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault { return verbstest.Hold() })
	var b xfer.Batch
	b.Write(remote, mine.All())
	rdmatest.Check(t, m.peer.Start(&b))
	rdmatest.Check(t, m.b.Close())
	if err := b.Wait(ctx); !errors.Is(err, xfer.ErrPeerLost) {
		t.Errorf("the peer has gone: %v", err)
	}
	m.net.SetFault(nil)
	<-m.peer.Done()
	if err := m.peer.Write(ctx, remote, mine.All()); !errors.Is(err, xfer.ErrPeerLost) || m.peer.Err() == nil {
		t.Errorf("after that: %v", err)
	}
	rdmatest.Check(t, mine.Close()) // nothing uses it

	again := m.engine(t, 1, 1, quick)
	l := rdmatest.Must(again.Listen(ctx, m.l.Addr().String()))(t)
	peer := rdmatest.Must(m.a.Dial(ctx, l.Addr().String()))(t)
	mine, theirs = memory(t, m.a, 50_000, 1), memory(t, again, 50_000, 2)
	if err := peer.Write(ctx, remote, mine.All()); !errors.Is(err, xfer.ErrStale) {
		t.Errorf("what was granted before: %v", err)
	}
	rdmatest.Check(t, peer.Write(ctx, grant(t, theirs.All(), xfer.Write).Remote(), mine.All()))
	rdmatest.Check(t, peer.Close())
	if len(m.a.Peers()) != 0 {
		t.Errorf("peers %v", m.a.Peers())
	}
}

// A device is unplugged. The other one goes on, and all can be closed.
func TestRemoved(t *testing.T) {
	for i := range 4 {
		m := twoEngines(t, 2, quick)
		mine, theirs := memory(t, m.a, 50_000, 1), memory(t, m.b, 50_000, 2)
		g := grant(t, theirs.All(), xfer.Write)
		ctx := patient(t)
		m.allUp(t)
		rdmatest.Check(t, m.peer.Write(ctx, g.Remote(), mine.All()))
		m.net.Device(i).Remove()
		more := memory(t, m.a, 5000, 3) // perhaps before the engine knows
		fill(mine.Bytes(), 5)
		rdmatest.Check(t, m.peer.Write(ctx, g.Remote(), mine.All()))
		rdmatest.Check(t, m.peer.Write(ctx, grant(t, theirs.All(), xfer.Write).Remote().Slice(0, 5000), more.All()))
		if !bytes.Equal(theirs.Bytes()[5000:], mine.Bytes()[5000:]) {
			t.Error("wrong bytes")
		}
		rails := append(m.a.Stats().Rails, m.b.Stats().Rails...)
		if i := slices.IndexFunc(rails, func(r xfer.RailStats) bool { return !r.Up }); i < 0 {
			t.Errorf("no rail is down: %v", rails)
		}
		rdmatest.Check(t, g.Revoke(ctx))
		rdmatest.Check(t, errors.Join(m.a.Close(), m.b.Close(), m.net.Close()))
	}
}
