package xfer

import (
	"container/heap"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestRates: two rails together reach 0.95 of the sum of their speeds: equal ones, one that is four
// times slower, and one that slows down on the way. Their links are modelled in a time of their own:
// each sends its requests one after the other, and each answer takes a round trip.
func TestRates(t *testing.T) {
	const (
		gbps      = 1.0 / 8 // bytes per nanosecond
		roundTrip = 10_000
		total     = 4 << 30
	)
	always := func(rate float64) func(int64) float64 { return func(int64) float64 { return rate } }
	for name, speeds := range map[string][2]func(now int64) float64{
		"equal": {always(100 * gbps), always(100 * gbps)},
		"1:4":   {always(25 * gbps), always(100 * gbps)},
		"one slows down": {always(100 * gbps), func(now int64) float64 {
			if now > 80e6 { // of about 200 ms
				return 20 * gbps
			}
			return 100 * gbps
		}},
		"one speeds up": {always(100 * gbps), func(now int64) float64 {
			if now > 80e6 {
				return 100 * gbps
			}
			return 5 * gbps
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.New(t)
			e := rdmatest.Must(Open(Options{}))(t)
			defer e.Close()
			var now int64 = 1
			e.now = func() int64 { return now }
			mem := rdmatest.Must(e.Alloc(64 << 20))(t)
			p := &Peer{e: e, rails: make([]railInfo, 2)}
			p.scheduler.init(p, 1)
			var events eventHeap
			var sent [2]float64
			for i, r := range e.rails {
				l := p.newLane(r, i, bulk)
				l.link = l.newLink(overRC, i)
				l.link.up = true
				free := int64(0)
				l.link.end = fakeInitiator(func(wrs []verbs.SendWR) (int, error) {
					for _, wr := range wrs {
						bytes := float64(wr.SGL[0].Length)
						free = max(free, now)
						free += int64(bytes / speeds[i](free))
						sent[i] += bytes
						if wr.Flags&verbs.SendSignaled != 0 {
							heap.Push(&events, event{free + roundTrip, l.link, verbs.WC{WRID: wr.WRID}})
						}
					}
					return len(wrs), nil
				})
				p.lanes = append(p.lanes, l)
				p.up++
			}
			remote := Remote{engine: engineID{1}, grant: 1, access: Write, n: uint64(mem.Len())}
			p.engine = remote.engine
			p.attached[attachKey{1, secret{}}] = &attachment{ready: true, length: remote.n, access: Write, keys: []uint32{1, 2}}
			p.begun = true
			var b Batch
			for range total / mem.Len() {
				b.Write(remote, mem.All())
			}
			rdmatest.Check(t, p.Start(&b))
			for len(events) > 0 {
				x := heap.Pop(&events).(event)
				now = x.at
				x.link.complete([]verbs.WC{x.wc})
			}
			rdmatest.Check(t, b.Wait(t.Context()))
			possible := 0.0
			for at := int64(0); at < now; at += 1000 {
				possible += 1000 * (speeds[0](at) + speeds[1](at))
			}
			ratio := total / possible
			t.Logf("%d ms, %.3f of the sum; %.0f and %.0f MB", now/1e6, ratio, sent[0]/1e6, sent[1]/1e6)
			if ratio < 0.95 {
				t.Errorf("%.3f of the sum of the speeds", ratio)
			}
			rdmatest.Check(t, e.Close())
			rdmatest.Check(t, n.Close())
		})
	}
}

// modelled returns a peer whose links are modelled: one for each class, over one rail.
func modelled(t *testing.T, e *Engine, post func(c class) fakeInitiator) (*Peer, Remote) {
	t.Helper()
	p := &Peer{e: e, dialed: "peer", rails: make([]railInfo, 1)}
	p.scheduler.init(p, 1)
	for c := range classes {
		l := p.newLane(e.rails[0], 0, c)
		l.link = l.newLink(overRC, 0)
		l.link.up, l.link.end = true, post(c)
		p.lanes = append(p.lanes, l)
		p.up++
	}
	remote := Remote{engine: engineID{1}, grant: 1, access: Write, n: 64 << 20}
	p.engine, p.begun = remote.engine, true
	p.attached[attachKey{1, secret{}}] = &attachment{ready: true, length: remote.n, access: Write, keys: []uint32{1}}
	return p, remote
}

// TestShortBesideLong: of 100 short writes, 99 take at most twice the time beside long ones that they take alone. A link
// sends the packets of its queue pairs in turns.
func TestShortBesideLong(t *testing.T) {
	const (
		rate      = 100.0 / 8 // bytes per nanosecond
		packet    = 4096
		roundTrip = 10_000
		writes    = 2000
	)
	verbstest.New(t)
	e := rdmatest.Must(Open(Options{}))(t)
	defer e.Close()
	var now int64 = 1
	e.now = func() int64 { return now }
	mem := rdmatest.Must(e.Alloc(64 << 20))(t)
	p99 := func(long bool) int64 {
		var queues [classes][]verbs.SendWR // requests that the device has
		p, remote := modelled(t, e, func(c class) fakeInitiator {
			return func(wrs []verbs.SendWR) (int, error) {
				for _, wr := range wrs {
					queues[c] = append(queues[c], verbs.SendWR{WRID: wr.WRID, Flags: wr.Flags, Add: uint64(wr.SGL[0].Length)}) // Add: still to send
				}
				return len(wrs), nil
			}
		})
		var took []int64
		began, running := now, 1
		short := Batch{OnDone: func(b *Batch) {
			rdmatest.Check(t, b.Err())
			if took = append(took, now-began); len(took) < writes {
				began = now
				rdmatest.Check(t, p.Start(b))
				return
			}
			running--
		}}
		short.Write(remote.Slice(0, 64), mem.Slice(0, 64))
		again := Batch{OnDone: func(b *Batch) {
			rdmatest.Check(t, b.Err())
			if len(took) < writes {
				rdmatest.Check(t, p.Start(b))
				return
			}
			running--
		}}
		again.Write(remote, mem.All())
		if long {
			running++
			rdmatest.Check(t, p.Start(&again))
		}
		rdmatest.Check(t, p.Start(&short))
		var events eventHeap
		free, turn := now, class(0) // when the link may send, and from which queue
		for running > 0 {
			if len(queues[turn]) == 0 {
				turn = 1 - turn
			}
			free = max(free, now)
			if idle := len(queues[turn]) == 0; idle || len(events) > 0 && events[0].at <= free {
				x := heap.Pop(&events).(event)
				now = x.at
				x.link.complete([]verbs.WC{x.wc})
				continue
			}
			wr := &queues[turn][0]
			n := min(wr.Add, packet)
			free += int64(float64(n)/rate) + 1
			if wr.Add -= n; wr.Add == 0 {
				if wr.Flags&verbs.SendSignaled != 0 {
					heap.Push(&events, event{free + roundTrip, p.lanes[turn].link, verbs.WC{WRID: wr.WRID}})
				}
				queues[turn] = queues[turn][1:]
			}
			turn = 1 - turn
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	alone, beside := p99(false), p99(true)
	t.Logf("%d ns alone, %d ns beside long writes", alone, beside)
	if beside > 2*alone {
		t.Errorf("%d ns beside long writes, %d ns alone", beside, alone)
	}
}

// TestErrorNames: the error of a request that has failed names the operation, the peer, the rail, the completion's status
// and the vendor syndrome.
func TestErrorNames(t *testing.T) {
	verbstest.New(t)
	e := rdmatest.Must(Open(Options{}))(t)
	defer e.Close()
	mem := rdmatest.Must(e.Alloc(4096))(t)
	var posted uint64
	p, remote := modelled(t, e, func(class) fakeInitiator {
		return func(wrs []verbs.SendWR) (int, error) {
			posted = wrs[0].WRID
			return len(wrs), nil
		}
	})
	var b Batch
	b.Write(remote.Slice(0, 64), mem.Slice(0, 64))
	rdmatest.Check(t, p.Start(&b))
	l := p.lanes[small]
	k := l.link
	k.complete([]verbs.WC{{WRID: posted, Status: verbs.WCRemAccessErr, VendorErr: 0x88}})
	p.scheduler.mu.Lock()
	p.resolve(k, k.failed[0], nil)
	p.scheduler.unlock()
	err := b.Wait(t.Context())
	var got *Error
	want := Error{Op: "write", Peer: "peer", Rail: e.Rails()[0], Status: verbs.WCRemAccessErr, Vendor: 0x88}
	if !errors.As(err, &got) {
		t.Fatalf("%v", err)
	}
	if want.Err = got.Err; *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	for _, part := range []string{"write, peer peer, rail " + e.Rails()[0], "REM_ACCESS_ERR", "0x88"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
}

// A fakeInitiator is a function that posts.
type fakeInitiator func([]verbs.SendWR) (int, error)

func (f fakeInitiator) offer(*message) error                 { return nil }
func (f fakeInitiator) connect(*message) error               { return nil }
func (f fakeInitiator) ready() bool                          { return true }
func (f fakeInitiator) post(wrs []verbs.SendWR) (int, error) { return f(wrs) }
func (f fakeInitiator) idle()                                {}
func (f fakeInitiator) fail() error                          { return nil }
func (f fakeInitiator) close() error                         { return nil }

// An event is a completion at a time.
type event struct {
	at   int64
	link *link
	wc   verbs.WC
}

type eventHeap []event

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h eventHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)        { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
