package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/verbs"
)

// testRun returns a run without devices.
func testRun(ctx context.Context) *run {
	return &run{ctx: ctx, o: &Options{Patience: time.Millisecond}, g: &Group{Name: "group"}, until: time.Now().Add(time.Hour)}
}

// A check is recorded as passed, as failed, or as not there, and closes the objects that it opened.
func TestCheck(t *testing.T) {
	r := testRun(t.Context())
	var closed []string
	closing := func(c *check, name string, err error) {
		c.closing(name, func() error { closed = append(closed, name); return err })
	}
	r.check("passes", func(c *check) error { closing(c, "a", nil); closing(c, "b", nil); return nil })
	if r.g.Passed != 1 || !slices.Equal(closed, []string{"b", "a"}) {
		t.Errorf("passed %d, closed %q", r.g.Passed, closed)
	}
	r.check("absent", func(c *check) error { return notThere("XRC") })
	if !slices.Equal(r.g.NotThere, []string{"XRC"}) || r.g.Passed != 1 {
		t.Errorf("not there: %q", r.g.NotThere)
	}
	r.check("fails", func(c *check) error { c.at("QP 7"); return errors.New("reason") })
	r.check("closes badly", func(c *check) error { closing(c, "CQ", errors.New("busy")); return nil })
	r.check("panics", func(c *check) error { c.at("QP 8"); panic("nil") })
	want := []Failure{
		{Group: "group", Check: "fails", Object: "QP 7", Expected: "success", Seen: "reason"},
		{Group: "group", Check: "closes badly", Object: "CQ", Expected: "to close", Seen: "busy"},
		{Group: "group", Check: "panics", Object: "QP 8", Expected: "no panic", Seen: "panic: nil"},
	}
	if len(r.g.Failures) != len(want) {
		t.Fatalf("%+v", r.g.Failures)
	}
	for i, f := range r.g.Failures {
		f.Details = nil // a stack
		if f.Group != want[i].Group || f.Check != want[i].Check || f.Object != want[i].Object || f.Expected != want[i].Expected || f.Seen != want[i].Seen {
			t.Errorf("got %+v, want %+v", f, want[i])
		}
	}
}

// After many failures, or when interrupted, a group runs no further check.
func TestOver(t *testing.T) {
	r := testRun(t.Context())
	n := 0
	for range maxFailures + 5 {
		r.check("fails", func(*check) error { n++; return errors.New("reason") })
	}
	if n != maxFailures {
		t.Errorf("%d checks ran, want %d", n, maxFailures)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r = testRun(ctx)
	cancel()
	r.check("late", func(*check) error { t.Error("a check ran after the interrupt"); return nil })
	r.g.conclude(true)
	if r.g.Status != Stopped {
		t.Error(r.g.Status)
	}
}

func TestConclude(t *testing.T) {
	for _, tt := range []struct {
		g    Group
		want Status
	}{
		{Group{Passed: 1}, Passed},
		{Group{Passed: 1, Done: 5, Planned: 5}, Passed},
		{Group{Passed: 1, Done: 4, Planned: 5}, Shortened},
		{Group{}, NotThere},
		{Group{Passed: 3, Failures: []Failure{{}}}, Failed},
	} {
		g := tt.g
		if g.conclude(false); g.Status != tt.want {
			t.Errorf("%+v: %s, want %s", tt.g, g.Status, tt.want)
		}
	}
	r := Report{Groups: []*Group{{Status: NotThere}, {Status: Passed}, {Status: Shortened}}}
	if r.conclude(); r.Status != Shortened {
		t.Error(r.Status)
	}
	r.Groups = append(r.Groups, &Group{Status: Failed})
	if r.conclude(); r.Status != Failed {
		t.Error(r.Status)
	}
}

// A report shows no address, in no form, and equal addresses are still equal.
func TestHide(t *testing.T) {
	h := newHider()
	gid, err := ib.ParseGID("::ffff:192.0.2.7")
	if err != nil {
		t.Fatal(err)
	}
	guid, err := ib.ParseGUID("0002:c903:006f:7600")
	if err != nil {
		t.Fatal(err)
	}
	h.gid(gid)
	h.guid(guid)
	h.add("mac", "02:00:5e:00:53:01")
	g := &Group{
		NotThere: []string{"to 192.0.2.7"},
		Failures: []Failure{{Object: "by ::ffff:192.0.2.7", Seen: "from 0002:c903:006f:7600 and 0002c903006f7600", Details: []string{"02:00:5e:00:53:01"}}},
		Facts:    []Fact{{"GIDs", []string{gid.String()}}, {"a number", 7}},
	}
	h.group(g)
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	// A hash may have the digits of a secret by chance.
	shown := regexp.MustCompile(` [0-9a-f]{8}\\u003e`).ReplaceAll(text, nil)
	for _, secret := range []string{"192.0.2", "c903", "5e:00", "7600"} {
		if bytes.Contains(shown, []byte(secret)) {
			t.Errorf("%s is in %s", secret, shown)
		}
	}
	if a, b := h.text("192.0.2.7"), h.text("192.0.2.7"); a != b || !strings.HasPrefix(a, "<gid ") {
		t.Errorf("%s and %s", a, b)
	}
	other := newHider()
	other.gid(gid)
	if a, b := h.text("192.0.2.7"), other.text("192.0.2.7"); a == b {
		t.Error("the number is the same in another report")
	}
}

// The ring of an mlx5 queue is as long as the driver makes it: a power of two that holds
// all requests of the greatest length.
func TestRing(t *testing.T) {
	cap := verbs.QPCap{MaxSendWR: 32, MaxSendSGE: 8, MaxInlineData: 300}
	r := newRing(true, cap)
	// 12 segments and 19 of inline data are 8 blocks of 64 bytes.
	if r.slots != 256 {
		t.Errorf("%d slots", r.slots)
	}
	for _, tt := range []struct{ n, slots int }{{1, 1}, {28, 1}, {29, 2}, {92, 2}, {93, 3}, {300, 6}} {
		if got := r.inline(tt.n); got != tt.slots {
			t.Errorf("%d inline bytes take %d slots, want %d", tt.n, got, tt.slots)
		}
		if tt.slots > 1 && r.inline(r.inlineFor(tt.slots, 300)) != tt.slots {
			t.Errorf("%d bytes are not the most for %d slots", r.inlineFor(tt.slots, 300), tt.slots)
		}
	}
	for _, tt := range []struct{ k, slots int }{{1, 1}, {2, 1}, {3, 2}, {6, 2}, {7, 3}} {
		if got := r.pieces(tt.k); got != tt.slots {
			t.Errorf("%d pieces take %d slots, want %d", tt.k, got, tt.slots)
		}
	}
	for slots := 1; slots <= 3; slots++ {
		for turn := range 8 {
			if k := r.piecesFor(slots, turn, cap.MaxSendSGE); r.pieces(k) != slots || k > cap.MaxSendSGE {
				t.Errorf("%d pieces for %d slots", k, slots)
			}
		}
	}
	// If requests have fewer pieces or inline bytes, some sizes can't be reached.
	for slots, want := range map[int]int{1: 1, 2: 0} {
		for turn := range 8 {
			if k := r.piecesFor(slots, turn, 1); k != want {
				t.Errorf("%d pieces for %d slots, of one at most", k, slots)
			}
		}
	}
	for _, tt := range []struct{ slots, most, n int }{{1, 60, 28}, {2, 60, 60}, {3, 60, 0}, {1, 12, 12}, {1, 0, 0}, {2, 0, 0}} {
		if n := r.inlineFor(tt.slots, tt.most); n != tt.n {
			t.Errorf("%d inline bytes for %d slots, of %d at most", n, tt.slots, tt.most)
		}
	}
	if r := newRing(false, cap); r.inline(300) != 1 || r.pieces(8) != 1 {
		t.Error("a request of another driver takes more than a slot")
	}
}

// The sum of all parts is the whole, so that a group that does all of them is not shortened.
func TestPart(t *testing.T) {
	for _, whole := range []int{0, 1, 5, 99_999, 100_000, postsPlanned} {
		for _, n := range []int{1, 6, 12} {
			sum := 0
			for i := range n {
				p := part(whole, n, i)
				if p < whole/n || p > whole/n+1 {
					t.Errorf("part %d of %d of %d is %d", i, n, whole, p)
				}
				sum += p
			}
			if sum != whole {
				t.Errorf("%d parts of %d are %d", n, whole, sum)
			}
		}
	}
}

// A missing feature is no longer planned, and is reported once.
func TestNotPlanned(t *testing.T) {
	r := testRun(t.Context())
	r.planned(10, "things")
	r.check("there", func(c *check) error { c.plan = 7; c.done(7); return nil })
	for range 2 {
		r.check("absent", func(c *check) error { c.plan = 3; return notThere("it") })
		if r.g.conclude(false); r.g.Status != Passed || r.g.Planned != 7 || !slices.Equal(r.g.NotThere, []string{"it"}) {
			t.Errorf("%+v", r.g)
		}
		r.g.Planned += 3
	}
}

// limited returns a run on a device with these limits.
func limited(t *testing.T, a verbs.DeviceAttr) *run {
	r := testRun(t.Context())
	s := &side{dev: new(verbs.Device), attr: &a}
	r.sides = [2]*side{s, s}
	return r
}

// A pair asks for no more than the devices have.
func TestFit(t *testing.T) {
	roomy := verbs.DeviceAttr{MaxQPWR: 512, MaxSGE: 8, MaxCQE: 1024, MaxSRQ: 4, MaxSRQWR: 32, MaxSRQSGE: 2}
	for _, tt := range []struct {
		name string
		s    shape
		lack func(*verbs.DeviceAttr)
		sges int // 0: an absence
	}{
		{"enough", shape{sends: 512, recvs: 512, sges: 8, cqe: 1024}, nil, 8},
		{"sends", shape{sends: 513, sges: 1}, nil, 0},
		{"receives", shape{recvs: 513, sges: 1}, nil, 0},
		{"completions", shape{sends: 1, sges: 1, cqe: 1025}, nil, 0},
		{"completions of all sends", shape{sends: 5, sges: 1}, func(a *verbs.DeviceAttr) { a.MaxCQE = 4 }, 0},
		{"entries", shape{sends: 1, sges: 9}, nil, 0},
		{"fewer entries", shape{sends: 1, sges: 9, fewer: true}, nil, 8},
		{"one entry", shape{sends: 1, sges: 9, fewer: true}, func(a *verbs.DeviceAttr) { a.MaxSGE = 1 }, 1},
		{"fewer entries of an SRQ", shape{srq: true, recvs: 32, sges: 4, fewer: true}, nil, 2},
		{"receives of an SRQ", shape{srq: true, recvs: 33, sges: 1}, nil, 0},
		{"receives of an SRQ of XRC", shape{typ: verbs.XRCSend, recvs: 33, sges: 1}, nil, 0},
		{"no SRQ", shape{srq: true, recvs: 1, sges: 1}, func(a *verbs.DeviceAttr) { a.MaxSRQ = 0 }, 0},
		{"no SRQ for DC", shape{typ: verbs.DCI, recvs: 1, sges: 1}, func(a *verbs.DeviceAttr) { a.MaxSRQ = 0 }, 0},
		{"no SRQ needed", shape{recvs: 1, sges: 1}, func(a *verbs.DeviceAttr) { a.MaxSRQ = 0 }, 1},
	} {
		a := roomy
		if tt.lack != nil {
			tt.lack(&a)
		}
		asked := tt.s.sges
		r := limited(t, a)
		err := r.fit(&tt.s)
		var absent *absence
		if errors.As(err, &absent) != (tt.sges == 0) || err == nil && tt.s.sges != tt.sges || (err == nil && tt.sges < asked) != (len(r.g.NotThere) > 0) {
			t.Errorf("%s: %v, %d entries, %q", tt.name, err, tt.s.sges, r.g.NotThere)
		}
	}
}

// The missing features of an EFA adapter are reported in a fixed order, so that reports can be compared.
func TestEFANotThere(t *testing.T) {
	want := []string{"RDMA reads, of this device or its driver", "RDMA writes, of this device or its driver", "RC, UC, XRC and DC", "atomic operations", "fences"}
	for range 100 { // a map's order would differ in some of them
		r := limited(t, verbs.DeviceAttr{MaxQPWR: 512, MaxSGE: 2, MaxCQE: 1024})
		r.sides[0].port, r.sides[0].efa = &verbs.PortAttr{ActiveMTU: verbs.MTU4096, MaxMsgSize: 8928}, new(efadv.DeviceAttr)
		if efaData(r); !slices.Equal(r.g.NotThere, want) {
			t.Fatalf("%q, want %q", r.g.NotThere, want)
		}
	}
}

// A tally reports the lengths at which an operation has failed and passed.
func TestTally(t *testing.T) {
	r := testRun(t.Context())
	c := &check{run: r, name: "check"}
	tl := &tally{c: c}
	for n := range 10 {
		var err error
		if n%4 == 3 {
			err = &mismatch{Failure{Object: "QP", Seen: "wrong"}}
		}
		if !tl.add(n, err) {
			t.Error("a mismatch ends the check")
		}
	}
	tl.file()
	if len(r.g.Failures) != 1 || !slices.Equal(r.g.Failures[0].Also, []string{"at lengths 7"}) || !slices.Equal(r.g.Failures[0].Right, []string{"at lengths 0, 1, 2, 4, 5, 6, 8, 9"}) {
		t.Errorf("%+v", r.g.Failures)
	}
	if tl.add(1, errors.New("flushed")) {
		t.Error("a check goes on after a request has failed")
	}
}

// A clock goes forward, also where it wraps.
func TestBehind(t *testing.T) {
	s := &side{attr: &verbs.DeviceAttr{CompletionTimestampMask: 1<<48 - 1}}
	for _, tt := range []struct {
		now, before uint64
		want        bool
	}{{10, 9, false}, {9, 9, false}, {9, 10, true}, {5, 1<<48 - 5, false}, {1<<48 - 5, 5, true}} {
		if got := s.behind(tt.now, tt.before); got != tt.want {
			t.Errorf("%d after %d: %v", tt.now, tt.before, got)
		}
	}
}
