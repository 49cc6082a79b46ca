package perftest

import (
	"math"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// TestUnits: a bandwidth printed in MB/s, of 2²⁰ bytes, or in Gb/s is stored in Gb/s.
func TestUnits(t *testing.T) {
	for _, gbits := range []bool{false, true} {
		s := &side{options: newOptions(tool(t, "send_bw")), port: new(verbs.PortAttr), pathMTU: verbs.MTU1024}
		s.gbits, s.asJSON = gbits, true
		s.addBandwidth(bandwidth{size: 65536, iters: 1000, peak: 2000, average: 1000, rate: 0.25})
		got, want := *s.report.sizes[0].Bandwidth, Bandwidth{Peak: 2000, Average: 1000, Messages: 250000}
		if !gbits {
			want.Peak, want.Average = 16.777216, 8.388608
			got.Peak, got.Average = math.Round(got.Peak*1e9)/1e9, math.Round(got.Average*1e9)/1e9
		}
		if got != want || s.report.sizes[0].Bytes != 65536 || s.report.sizes[0].Messages != 1000 {
			t.Errorf("in Gb/s: %v: %+v, want %+v", gbits, got, want)
		}
	}
}

// TestUnitsOfResult: a bandwidth is in MB/s of 2²⁰ bytes, or in Gb/s of 10⁹ bits.
func TestUnitsOfResult(t *testing.T) {
	for gbits, want := range map[bool]float64{false: 50, true: 50 * (1 << 20) * 8 / 1e9} {
		s := &stream{side: &side{options: newOptions(tool(t, "send_bw"))}, bytes: 1 << 20, sends: make([]*sendQueue, 1), sent: 100, end: 2e9}
		s.gbits = gbits
		if got := s.result(); math.Abs(got.average/want-1) > 1e-9 || math.Abs(got.rate/50e-6-1) > 1e-9 || got.size != 1<<20 || got.iters != 100 {
			t.Errorf("in Gb/s: %v: %+v, want %v", gbits, got, want)
		}
	}
}

// TestNothing: a test whose peer had no processor for all of its duration has no row of zeros, but fails.
func TestNothing(t *testing.T) {
	for _, name := range []string{"write_bw", "write_lat"} {
		s := &side{options: newOptions(tool(t, name)), port: new(verbs.PortAttr), pathMTU: verbs.MTU1024}
		s.duration, s.asJSON = 2, true
		s.margin = 0
		add := func(messages int) {
			if s.tool.latency {
				s.addLatency(latency{size: 64, iters: messages})
			} else {
				s.addBandwidth(bandwidth{size: 64, iters: uint64(messages)})
			}
		}
		add(0)
		if len(s.report.results) > 0 || s.report.failed == nil || !strings.Contains(s.report.failed.Error(), "in the 2 seconds") {
			t.Errorf("%s without a message: %v, %v", name, s.report.results, s.report.failed)
		}
		add(1)
		s.duration = 0
		add(0)
		if len(s.report.results) != 2 {
			t.Errorf("%s with a message, and without a duration: %v", name, s.report.results)
		}
	}
}

// TestShape: the blocks show the most frequent latencies as the highest.
func TestShape(t *testing.T) {
	for _, test := range []struct {
		times []int64 // nanoseconds, there and back
		want  string
	}{
		{[]int64{2000, 2000, 2000, 2000}, "1 µs ▕█▏ 1 µs"},
		{[]int64{2000, 2000, 2000, 2000, 2100, 2100}, "1 µs ▕█ ▄▏ 1.05 µs"},
	} {
		r := newRecorder(true, 0)
		for i, v := range test.times {
			r.add(int64(i)*10_000, v)
		}
		if got := r.result(r.summarise(1)).shape(); got != test.want {
			t.Errorf("%v: %q, want %q", test.times, got, test.want)
		}
	}
	r := newRecorder(true, 0)
	for i := range 1000 {
		r.add(int64(i)*1e6, int64(1000+i*i))
	}
	if got := r.result(r.summarise(1)).shape(); len([]rune(got)) < 48 || !strings.Contains(got, "█") {
		t.Errorf("%q", got)
	}
}
