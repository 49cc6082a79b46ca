package perftest

import (
	"math"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

func TestPayload(t *testing.T) {
	v4 := verbs.GID{10: 0xff, 11: 0xff, 12: 192}
	for _, test := range []struct {
		tool, line string
		link       verbs.LinkLayer
		gid        verbs.GIDEntry
		size, mtu  int
		want       float64
	}{
		{"send_bw", "", verbs.LinkLayerInfiniBand, verbs.GIDEntry{}, 4096, 4096, 4096.0 / 4122},
		{"send_bw", "", verbs.LinkLayerInfiniBand, verbs.GIDEntry{}, 4096, 1024, 4096.0 / (4096 + 4*26)},
		{"send_bw", "", verbs.LinkLayerEthernet, verbs.GIDEntry{GID: v4, Type: verbs.GIDTypeRoCEv2}, 1024, 1024, 1024.0 / (1024 + 82)},
		{"send_bw", "", verbs.LinkLayerEthernet, verbs.GIDEntry{Type: verbs.GIDTypeRoCEv2}, 1024, 1024, 1024.0 / (1024 + 102)},
		{"send_bw", "", verbs.LinkLayerEthernet, verbs.GIDEntry{Type: verbs.GIDTypeRoCEv1}, 1024, 1024, 1024.0 / (1024 + 94)},
		{"send_bw", "--connection=UD", verbs.LinkLayerInfiniBand, verbs.GIDEntry{}, 1, 1024, 1.0 / (4 + 26 + 8)},
		{"write_bw", "", verbs.LinkLayerInfiniBand, verbs.GIDEntry{}, 65536, 4096, 65536.0 / (65536 + 16*26 + 16)},
	} {
		o, err := parse(t, test.tool, test.line)
		if err != nil {
			t.Fatal(err)
		}
		s := &side{options: o, port: &verbs.PortAttr{LinkLayer: test.link}, gid: test.gid}
		if got := s.payload(test.size, test.mtu); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestLinkGbits(t *testing.T) {
	for _, test := range []struct {
		speed verbs.Speed
		width verbs.Width
		link  verbs.LinkLayer
		want  float64
	}{
		{verbs.SpeedEDR, verbs.Width4X, verbs.LinkLayerInfiniBand, 100},
		{verbs.SpeedQDR, verbs.Width4X, verbs.LinkLayerInfiniBand, 32},
		{verbs.SpeedQDR, verbs.Width4X, verbs.LinkLayerEthernet, 40},
		{verbs.SpeedSDR, verbs.Width1X, verbs.LinkLayerEthernet, 2.5},
		{0, verbs.Width4X, verbs.LinkLayerEthernet, 0},
	} {
		s := &side{port: &verbs.PortAttr{ActiveSpeed: test.speed, ActiveWidth: test.width, LinkLayer: test.link}}
		if got := s.linkGbits(); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// TestReside: a full queue whose messages don't wait, and a queue with room.
func TestReside(t *testing.T) {
	// Each message takes 100; four are in flight, and one is posted when one has completed.
	var posts []int64
	var done []completion
	for i := range 100 {
		at := int64(i/4*100 + i%4)
		posts = append(posts, at)
		done = append(done, completion{i + 1, at + 100})
	}
	r := reside(posts, 1, done, 4)
	if r.least != 100 || math.Abs(r.mean-100) > 1e-6 || r.full < 0.9 {
		t.Errorf("%+v", r)
	}
	if r := reside(posts, 1, done, 100); r.full > 0.1 {
		t.Errorf("with room: %+v", r)
	}
}

func TestLimits(t *testing.T) {
	full := residence{least: 3000, mean: 3100, full: 0.98}
	plain := facts{bytes: 65536, average: 40, link: 100, limit: 96, withLarger: 97, mtu: 1024, larger: 4096, idle: 5000, busy: 5000, sends: true, depth: 16}
	with := func(change func(*facts)) facts {
		f := plain
		change(&f)
		return f
	}
	for _, test := range []struct {
		name  string
		facts facts
		says  string
	}{
		{"nothing to see", plain, ""},
		{"wire", with(func(f *facts) { f.average = 90 }), "The wire is the limit: this is 94 % of what a link of 100 Gb/s carries of messages of 64 KiB."},
		{"MTU", with(func(f *facts) { f.average, f.withLarger = 90, 102 }), "With an MTU of 4096 instead of 1024 it would carry 6 % more."},
		{"an unknown link", with(func(f *facts) { f.limit, f.link = 0, 0 }), ""},
		{"core", with(func(f *facts) { f.idle, f.busy = 50, 9950 }), "One core is the limit: the one that posts and polls here had nothing to wait for in 100 % of its polls."},
		{"a core of few polls", with(func(f *facts) { f.idle, f.busy = 0, 50 }), ""},
		{"a receiver", with(func(f *facts) { f.idle, f.busy, f.sends = 0, 9950, false }), ""},
		{"depth", with(func(f *facts) { f.queue = full }), "The queue's depth is the limit: 16 messages were in flight nearly always, and each took 3.1 µs"},
		{"messages wait", with(func(f *facts) { f.queue = residence{3000, 9000, 1} }), ""},
		{"a queue with room", with(func(f *facts) { f.queue = residence{3000, 3100, 0.3} }), ""},
		{"a wire that is nearly full", with(func(f *facts) { f.queue, f.average = full, 80 }), ""},
	} {
		got := test.facts.says()
		if (got == "") != (test.says == "") || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, want %q in it", test.name, got, test.says)
		}
	}
}
