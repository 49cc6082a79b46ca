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
	var b strings.Builder
	n := uint64(0)
	p := &progress{to: &b, total: 1000, done: func() uint64 { return n }}
	n = 100
	p.show(time.Second)
	p.clear()
	if b.Len() > 0 {
		t.Errorf("a short run shows %q", b.String())
	}
	n = 450
	p.show(3 * time.Second)
	p.clear()
	if got := b.String(); got != "\r   3 s   45 %  450 messages  175/s \x1b[K\r\x1b[K\x1b[A\n" {
		t.Errorf("%q", got)
	}
	b.Reset()
	n = 3_000_000
	p = &progress{to: &b, whole: 10 * time.Second, done: p.done}
	p.show(4 * time.Second)
	if got := b.String(); !strings.Contains(got, " 40 %  3 M messages  750 k/s") {
		t.Errorf("%q", got)
	}
}
