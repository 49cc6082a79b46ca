package summary

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // the tables have times
	m.Run()
}

// TestQuantiles compares quantiles with those of the sorted durations.
func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []int64{10, 1000, 1e6, 1e10, 1 << 62} {
		var h histogram
		var all []time.Duration
		for range 5000 {
			d := time.Duration(random.Int64N(limit))
			h.add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, .01, .5, .9, .99, .999, 1} {
			want := all[max(0, int(q*5000+.9999)-1)]
			if got := h.quantile(q); got > want || float64(want-got) > float64(want)/(1<<subBits) {
				t.Errorf("up to %d: quantile %g is %d, want %d", limit, q, got, want)
			}
		}
		if h.min != all[0] || h.max != all[4999] || h.n != 5000 {
			t.Errorf("up to %d: min %d, max %d, n %d", limit, h.min, h.max, h.n)
		}
	}
}

// TestBuckets: a bucket's lowest duration is at most the duration, and that of the next bucket
// is greater.
func TestBuckets(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, 31, 32, 33, 63, 64, 65, 1 << 20, 1<<20 + 1, 1<<62 - 1, 1 << 62, 1<<63 - 1} {
		i := bucket(d)
		if i < 0 || i >= len(histogram{}.buckets) {
			t.Fatalf("%d: bucket %d", d, i)
		}
		if low := lowest(i); low > max(d, 0) || i+1 < len(histogram{}.buckets) && lowest(i+1) <= d && lowest(i+1) > 0 {
			t.Errorf("%d is in the bucket from %d to %d", d, low, lowest(i+1))
		}
	}
}

func TestTables(t *testing.T) {
	at := time.Date(2026, 2, 3, 10, 31, 7, 0, time.UTC)
	step := func(ms int, verb string, kind event.Kind, e event.Event) *event.Event {
		e.Time, e.Verb, e.Kind, e.PID, e.Comm = at.Add(time.Duration(ms)*time.Millisecond), verb, kind, 7, "server"
		e.Returned, e.Timed, e.Duration, e.File = true, true, 10*time.Microsecond, 1
		return &e
	}
	object := func(kind string, handle uint64, gen int) []event.Object {
		return []event.Object{{Type: kind, Handle: handle, Gen: gen, File: 1}}
	}
	before := object("pd", 9, 1)
	before[0].Before = true
	qp := object("qp", 3, 2)
	qp[0].Num = 0x11
	late := step(900, "ibv_destroy_cq", event.Control, event.Event{Destroyed: object("cq", 4, 1)})
	late.Duration = 3 * time.Millisecond
	events := []*event.Event{
		step(0, "", event.Note, event.Event{Created: before}),
		step(1, "ibv_alloc_pd", event.Control, event.Event{Created: object("pd", 1, 1)}),
		step(2, "ibv_create_qp", event.Control, event.Event{Created: object("qp", 3, 1)}),
		step(102, "ibv_destroy_qp", event.Control, event.Event{Destroyed: object("qp", 3, 1)}),
		step(103, "ibv_create_qp", event.Control, event.Event{Created: qp}),
		step(104, "ibv_create_qp", event.Control, event.Event{Ret: -1, Errno: "ENOMEM"}),
		step(105, "ibv_req_notify_cq", event.Data, event.Event{}),
		step(106, "ibv_req_notify_cq", event.Control, event.Event{}),
		step(107, "ibv_create_cq", event.Control, event.Event{Created: object("cq", 4, 1)}),
		late,
		step(950, "ibv_create_cq", event.Control, event.Event{Created: object("cq", 4, 2)}),
		step(990, "close", event.Close, event.Event{Destroyed: object("qp", 3, 2)}),
	}
	other := step(995, "ibv_alloc_pd", event.Control, event.Event{Created: []event.Object{{Type: "pd", Handle: 1, Gen: 1, File: 2}}})
	other.PID, other.Comm, other.Timed = 8, "client", false
	events = append(events, other)
	want := `  calls  errors    total     mean      p50      p99      max  verb
      3       1    30 µs    10 µs    10 µs    10 µs    10 µs  ibv_create_qp
      2            10 µs    10 µs    10 µs    10 µs    10 µs  ibv_alloc_pd
      2            20 µs    10 µs    10 µs    10 µs    10 µs  ibv_create_cq
      1            10 µs    10 µs    10 µs    10 µs    10 µs  close
      1          3000 µs  3000 µs  3000 µs  3000 µs  3000 µs  ibv_destroy_cq
      1            10 µs    10 µs    10 µs    10 µs    10 µs  ibv_destroy_qp
      1            10 µs    10 µs    10 µs    10 µs    10 µs  ibv_req_notify_cq
      1            10 µs    10 µs    10 µs    10 µs    10 µs  ibv_req_notify_cq in the kernel
     12       1  3100 µs                                      in 995 ms

  made  before  destroyed  left  mean life     p50     p99     max  objects
     2                  1     1     796 ms  796 ms  796 ms  796 ms  cq
     2       1          0     3                                     pd
     2                  1     1     100 ms  100 ms  100 ms  100 ms  qp

Never destroyed:
  qp 3#2 (qpn 0x11) of 7 server, made by ibv_create_qp at 10:31:07.103000; until its file was closed
  pd 9 of 7 server, there before the trace; until its file was closed
  pd 1 of 7 server, made by ibv_alloc_pd at 10:31:07.001000; until its file was closed
  cq 4#2 of 7 server, made by ibv_create_cq at 10:31:07.950000; until its file was closed
  pd 1 of 8 client, made by ibv_alloc_pd at 10:31:07.995000; still there
`
	if diff := cmp.Diff(want, summarize(t, events...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// summarize returns the summary of events.
func summarize(t *testing.T, events ...*event.Event) string {
	t.Helper()
	var b strings.Builder
	s := New(&b, "calls")
	for _, e := range events {
		if err := s.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSpan: a trace lasts until the end of its last verb.
func TestSpan(t *testing.T) {
	at := time.Date(2026, 2, 3, 10, 31, 7, 0, time.UTC)
	got := summarize(t, &event.Event{Time: at, Verb: "ibv_reg_mr", Kind: event.Control, Returned: true, Timed: true, Duration: 30 * time.Millisecond})
	if !strings.Contains(got, "in 30 ms\n") {
		t.Errorf("one verb of 30 ms:\n%s", got)
	}
}

// TestLifeOfBefore: the lifetime of an object that existed before the trace is not known.
func TestLifeOfBefore(t *testing.T) {
	at := time.Date(2026, 2, 3, 10, 31, 7, 0, time.UTC)
	o := []event.Object{{Type: "pd", Handle: 9, Gen: 1, File: 1, Before: true}}
	got := summarize(t,
		&event.Event{Time: at, Kind: event.Note, File: 1, Created: o},
		&event.Event{Time: at.Add(time.Second), Kind: event.Control, Verb: "ibv_dealloc_pd", File: 1, Returned: true, Destroyed: o})
	_, objects, _ := strings.Cut(got, "\n\n")
	lines := strings.Split(objects, "\n")
	if len(lines) < 2 || !slices.Equal(strings.Fields(lines[1]), []string{"0", "1", "1", "pd"}) {
		t.Errorf("want only made 0, before 1 and destroyed 1:\n%s", got)
	}
}

// TestManyLeft: a hundred objects that no verb destroyed are listed, the others are counted.
func TestManyLeft(t *testing.T) {
	e := &event.Event{Time: time.Date(2026, 2, 3, 10, 31, 7, 0, time.UTC), Kind: event.Control, Verb: "ibv_alloc_pd", File: 1, Returned: true}
	for i := range uint64(103) {
		e.Created = append(e.Created, event.Object{Type: "pd", Handle: i, Gen: 1, File: 1})
	}
	got := summarize(t, e)
	if n := strings.Count(got, "; still there"); n != 100 || !strings.HasSuffix(got, "  and 3 more\n") {
		t.Errorf("%d are named:\n%s", n, got)
	}
}

// TestOrders checks that every order puts the greatest first.
func TestOrders(t *testing.T) {
	for order, first := range map[string]string{"total": "c", "calls": "b", "errors": "a", "mean": "c", "max": "c", "name": "a"} {
		if !slices.Contains(Orders, order) {
			t.Errorf("%s is not in Orders", order)
		}
		var b strings.Builder
		s := New(&b, order)
		for verb, e := range map[string]event.Event{"a": {Errno: "EIO"}, "b": {}, "c": {Duration: time.Second}} {
			n := 1
			if verb == "b" {
				n = 3
			}
			for range n {
				e.Verb, e.Kind, e.Timed, e.Returned = verb, event.Control, true, true
				if err := s.Event(&e); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		line := strings.Split(b.String(), "\n")[1]
		if !strings.HasSuffix(line, " "+first) {
			t.Errorf("by %s, the first is %q, want %s", order, line, first)
		}
	}
}
