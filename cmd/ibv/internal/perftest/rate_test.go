package perftest

import (
	"math"
	"strings"
	"testing"
)

// TestPace: as many messages as the rate says, in bursts, and no fewer after a delay.
func TestPace(t *testing.T) {
	for _, test := range []struct {
		line string
		size int
		want float64 // messages per second
	}{
		{"--rate_limit=8 --rate_limit_type=SW", 1000, 1e6},
		{"--rate_limit=100 --rate_units=M --rate_limit_type=SW --burst_size=10", 1 << 10, 102400},
		{"--rate_limit=5000 --rate_units=p --rate_limit_type=SW --burst_size=1", 64, 5000},
	} {
		o, err := parse(t, "write_bw", test.line)
		if err != nil {
			t.Fatal(err)
		}
		p := o.newPace(test.size)
		posted, most := 0, 0
		const step, end = 1000, int64(1e9)
		for now := int64(0); now < end; now += step {
			if now == end/2 {
				now += end / 10 // the program didn't run
			}
			n := 0
			for p.allows(now, 1) {
				n++
			}
			posted += n
			if now < end/2 {
				most = max(most, n)
			}
		}
		if math.Abs(float64(posted)-test.want) > 0.001*test.want+float64(p.burst) || most > 2*p.burst {
			t.Errorf("%s: %d messages, %d at a time", test.line, posted, most)
		}
	}
	if o, err := parse(t, "write_bw", ""); err != nil || o.newPace(64) != nil {
		t.Errorf("without a limit: %v", err)
	}
}

func TestRateOptions(t *testing.T) {
	for _, test := range []struct{ tool, line, says string }{
		{"write_bw", "--rate_limit=10", ""},
		{"write_lat", "--rate_limit=10", ""},
		{"write_bw", "--rate_limit=3 --rate_limit_type=HW", "limits to 2.5, 5"},
		{"write_bw", "--rate_limit=10 --rate_units=M --rate_limit_type=HW", "limits to 2.5, 5"},
		{"write_bw", "--rate_limit=10 --rate_limit_type=HW --rdma_cm", "-R or -z"},
		{"write_bw", "--rate_limit=10 --rate_limit_type=HW --burst_size=3", "--burst_size"},
		{"write_bw", "--rate_limit=10 --rate_limit_type=PP", "raw Ethernet"},
		{"write_bw", "--rate_limit=10 --rate_limit_type=XX", "XX"},
		{"write_bw", "--rate_limit=10 --rate_units=k", `"k"`},
		{"write_bw", "--rate_limit=0", `"0" is not a rate`},
		{"write_bw", "--rate_limit=-1", `"-1" is not a rate`},
		{"write_bw", "--burst_size=10", "need --rate_limit"},
		{"write_bw", "--rate_limit_type=SW", "need --rate_limit"},
		{"write_lat", "--rate_limit=10 --rate_limit_type=SW", "latency"},
		{"atomic_bw", "--rate_limit=10 --rate_limit_type=SW", "atomic"},
		{"send_bw", "--rate_limit=10 --rate_limit_type=SW --bidirectional", "both directions"},
		{"send_bw", "--rate_limit=10 --rate_limit_type=SW --events", "-e"},
	} {
		_, err := parse(t, test.tool, test.line)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %s: %v, want %q in it", test.tool, test.line, err, test.says)
		}
	}
}
