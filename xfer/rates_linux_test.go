package xfer

import (
	"container/heap"
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
				l.link = l.newLink(i)
				l.link.up = true
				free := int64(0)
				l.link.post = func(wrs ...verbs.SendWR) (int, error) {
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
				}
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
				x.link.complete(&x.wc)
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
