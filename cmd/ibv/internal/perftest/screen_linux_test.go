package perftest

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

var update = flag.Bool("update", false, "write the pictures of docs")

// measurement shows a measurement whose times are made up.
func measurement(t *testing.T) {
	times := newRecorder(true, 0)
	s := &side{options: newOptions(tool(t, "write_lat"))}
	s.duration = 10
	s.printHead()
	p := &progress{whole: 10 * time.Second}
	for second := range int64(10) {
		for i := range 4000 + second*7%3*1000 {
			v := 3200 + i*i*7919%397 + i*104729%211
			if i%97 == 0 {
				v += i % 1700
			}
			times.add(second*1e9+i*2e5, v)
		}
		times.asked.Store(true)
		times.answer()
		cli.Live("%s", p.text(time.Duration(second+1)*time.Second, times.hist.Count(), float64(times.p99.Load())/times.unit))
		if second == 6 {
			io.Copy(io.Discard, os.Stdin)
		}
	}
	l := times.summarise(64)
	l.average, l.perSecond = 1.7, 4900
	s.addLatency(l)
	s.printf(rule)
	r := &Result{Sizes: s.report.sizes, CPU: CPU{Local: 1.72, Remote: new(float64)}}
	*r.CPU.Remote = 1.7
	s.printf("%s", r.summary(false))
}

// TestScreen: on a terminal, a measurement has a live line, which makes room for the result.
func TestScreen(t *testing.T) {
	const folder = "../../../../docs/screens/"
	x := rdmatest.Shows(t, 92, 12, func() { measurement(t) })
	x.Until("the live line", func() bool { return strings.Contains(x.Text(), " 7 s   70 %") })
	x.Picture(folder+"measuring.svg", "ibv write_lat -D 10 node2", *update)
	x.Press("\x04")
	rdmatest.Check(t, x.Wait())
	if strings.Contains(x.Text(), "messages  ") {
		t.Errorf("the live line is left:\n%s", x.Text())
	}
	x.Picture(folder+"measured.svg", "ibv write_lat -D 10 node2", *update)
}
