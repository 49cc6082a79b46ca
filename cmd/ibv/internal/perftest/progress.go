package perftest

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// startProgress shows the progress of a size on a terminal until stop is called. total is the number
// of messages, or 0 if it is unknown.
func (s *side) startProgress(c *clock, total int) (stop func()) {
	if !cli.Terminal(os.Stderr) || s.forever {
		return func() {}
	}
	p := &progress{to: os.Stderr, total: uint64(total), whole: time.Duration(s.duration) * time.Second, done: s.watch.progress.Load}
	if s.duration > 0 {
		p.total = 0
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				p.clear()
				return
			case <-tick.C:
				p.show(time.Duration(c.now()))
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// A progress rewrites a line of the terminal.
type progress struct {
	to    io.Writer
	total uint64        // messages; 0: the time decides
	whole time.Duration // the duration of a run with a duration
	done  func() uint64
	last  uint64
	at    time.Duration
	shown bool
}

// soon is the time before the line is shown: shorter runs need no progress.
const soon = 2 * time.Second

func (p *progress) show(now time.Duration) {
	n := p.done()
	rate := float64(n-p.last) / max(now-p.at, 1).Seconds()
	p.last, p.at = n, now
	if now < soon {
		return
	}
	p.shown = true
	share := 0.0
	switch {
	case p.total > 0:
		share = float64(n) / float64(p.total)
	case p.whole > 0:
		share = float64(now) / float64(p.whole)
	}
	fmt.Fprintf(p.to, "\r%4.0f s  %3.0f %%  %s messages  %s/s \x1b[K", now.Seconds(), 100*min(share, 1), brief(float64(n)), brief(rate))
}

// clear removes the line. The result begins on a line of its own also for a program that reads from
// a pseudo-terminal: the cursor goes up, and down again by a newline.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.to, "\r\x1b[K\x1b[A\n")
	}
}

// brief writes a number with three digits.
func brief(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= unit.size {
			return fmt.Sprintf("%.3g%s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}
