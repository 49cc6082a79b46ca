package perftest

import (
	"strings"
	"testing"
	"time"
)

func TestCost(t *testing.T) {
	var c cost
	stop := c.start(func() uint64 { return 10 })
	for before := cpuTime(); cpuTime() == before; {
	}
	stop()
	if c.cpu <= 0 {
		t.Error("no processor time was used")
	}
	if c.messages != 10 || c.perMessage(c.messages) != float64(c.cpu.Nanoseconds())/1e4 {
		t.Errorf("%+v", c)
	}
	if l := (load{[2]int64{100, 130}, [2]int64{50, 120}}); l.percent() != 30 {
		t.Errorf("%v %%", l.percent())
	}
	if l := (load{}); l.percent() != 0 {
		t.Errorf("of no time: %v %%", l.percent())
	}
	var l load
	l.read(0)
	if l.user[0]+l.idle[0] == 0 {
		t.Error("/proc/stat has nothing")
	}
}

func TestProgress(t *testing.T) {
	p := &progress{total: 1000}
	for _, step := range []struct {
		at   time.Duration
		n    uint64
		want string
	}{
		{time.Second, 0, "waiting for the first message"},
		{3 * time.Second, 450, "   3 s   45 %  450 messages  225/s  p99 2.5 µs  █"},
		{5 * time.Second, 550, "   5 s   55 %  550 messages  50/s  p99 2.5 µs  █▂"},
	} {
		if got := p.text(step.at, step.n, 2.5); got != step.want {
			t.Errorf("after %v: %q, want %q", step.at, got, step.want)
		}
	}
	p = &progress{whole: 10 * time.Second, bytes: 1000}
	if got := p.text(4*time.Second, 3_000_000, 0); !strings.Contains(got, " 40 %  3 M messages  750 k/s  6 Gb/s  █") {
		t.Errorf("%q", got)
	}
}
