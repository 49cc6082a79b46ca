package verbs

import (
	"fmt"
	"testing"
	"time"
)

// TestAckTimeout: a time is rounded up to the next code, and a code is its time.
func TestAckTimeout(t *testing.T) {
	for d, want := range map[time.Duration]AckTimeout{
		0: 0, -1: 0, 1: 1, 8192: 1, 8193: 2, 67 * time.Millisecond: 14, 68 * time.Millisecond: 15, 2 * time.Hour: 31, 1 << 62: 31,
	} {
		if got := AckTimeoutOf(d); got != want {
			t.Errorf("AckTimeoutOf(%d) is %d, want %d", d, got, want)
		}
	}
	for code := AckTimeout(1); code < 32; code++ {
		if got, want := code.Duration(), 4096*time.Nanosecond<<code; got != want || AckTimeoutOf(got) != code {
			t.Errorf("%d is %v, want %v; back %d", code, got, want, AckTimeoutOf(got))
		}
	}
	if AckTimeout(0).Duration() != 0 || AckTimeout(32).Duration() != 0 {
		t.Error("0 and 32 have durations")
	}
	if got := AckTimeout(0).String() + ", " + AckTimeout(14).String() + ", " + AckTimeout(32).String(); got != "for ever, 67.108864ms, invalid ACK timeout" {
		t.Error(got)
	}
}

// TestRNRTimer checks the table of the specification by its rule: from 10 µs on, two steps
// double the time.
func TestRNRTimer(t *testing.T) {
	for code := RNRTimer(5); code < 32; code++ {
		if got, want := code.Duration(), 2*(code-2).Duration(); got != want {
			t.Errorf("%d is %v, want %v", code, got, want)
		}
	}
	for code, want := range []time.Duration{655360, 10, 20, 30, 40} {
		if got := RNRTimer(code).Duration(); got != want*time.Microsecond {
			t.Errorf("%d is %v, want %d µs", code, got, want)
		}
	}
	for d, want := range map[time.Duration]RNRTimer{
		0: 1, 10_000: 1, 10_001: 2, 640 * time.Microsecond: 12, 641 * time.Microsecond: 13, 491520 * time.Microsecond: 31, 492 * time.Millisecond: 0, time.Hour: 0,
	} {
		if got := RNRTimerOf(d); got != want {
			t.Errorf("RNRTimerOf(%v) is %d, want %d", d, got, want)
		}
	}
	if got := RNRTimer(12).String() + ", " + RNRTimer(32).String(); got != "640µs, invalid RNR timer" || RNRTimer(32).Duration() != 0 {
		t.Error(got)
	}
}

// TestRate compares the rates with what libibverbs returns (ibv_rate_to_mbps).
func TestRate(t *testing.T) {
	c := map[Rate]int{
		2: 2500, 3: 10000, 4: 30000, 5: 5000, 6: 20000, 7: 40000, 8: 60000, 9: 80000, 10: 120000, 11: 14062, 12: 56250, 13: 112500,
		14: 168750, 15: 25781, 16: 103125, 17: 206250, 18: 309375, 19: 28125, 20: 53125, 21: 425000, 22: 637500, 23: 850000,
		25: 1700000, // computed from its lanes; this libibverbs lacked it
	}
	for r := range Rate(40) {
		if got := r.Mbps(); got != c[r] {
			t.Errorf("%v has %d Mb/s, want %d", r, got, c[r])
		} else if got != 0 && RateOf(got) != r {
			t.Errorf("%d Mb/s is %v, want %v", got, RateOf(got), r)
		}
	}
	if RateOf(100000) != RateMax || RateOf(0) != RateMax {
		t.Error("a rate that there is not")
	}
}

func TestNames(t *testing.T) {
	for _, x := range []struct {
		v    fmt.Stringer
		want string
	}{
		{MWType2, "2"}, {FlowDontTrap | FlowEgress, "DONT_TRAP|EGRESS"}, {CompressHash | CompressStride, "HASH|CSUM_STRIDX"},
		{FlushGlobal | FlushPersistent, "GLOBAL|PERSISTENT"}, {FlushMR, "MR"}, {MigArmed, "ARMED"}, {Rate100Gbps, "100_GBPS"},
	} {
		if got := x.v.String(); got != x.want {
			t.Errorf("%T %v, want %s", x.v, got, x.want)
		}
	}
}
