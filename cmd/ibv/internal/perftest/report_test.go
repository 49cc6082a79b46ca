package perftest

import (
	"math"
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
