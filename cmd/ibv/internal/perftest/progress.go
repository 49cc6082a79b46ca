package perftest

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// startProgress shows the progress of a size on a terminal until stop is called. total is the number
// of messages. bytes is the size of the messages of a bandwidth, and times has the latencies, or is
// nil.
func (s *side) startProgress(c *clock, total, bytes int, times *recorder) (stop func()) {
	if s.forever || s.follow == nil {
		return func() {}
	}
	p := &progress{total: uint64(total), whole: time.Duration(s.duration) * time.Second, bytes: bytes}
	if s.duration > 0 {
		p.total = 0
	}
	if times == nil {
		times = newRecorder(false, 0)
	}
	return s.follow(time.Second, func() string {
		defer times.asked.Store(true)
		return p.text(time.Duration(c.now()), s.watch.progress.Load(), float64(times.p99.Load())/times.unit)
	})
}

// A progress is that of a size.
type progress struct {
	total uint64        // messages; 0: the time decides
	whole time.Duration // the duration of a run with a duration
	bytes int           // of a message of a bandwidth
	last  uint64
	at    time.Duration
	past  []float64 // rates
}

// text returns the line when n messages are done. p99 is in µs, or 0.
func (p *progress) text(now time.Duration, n uint64, p99 float64) string {
	rate := float64(n-p.last) / max(now-p.at, 1).Seconds()
	p.last, p.at = n, now
	if n == 0 {
		return "waiting for the first message"
	}
	const shown = 16
	p.past = append(p.past[max(0, len(p.past)+1-shown):], rate)
	share := float64(now) / float64(max(p.whole, 1))
	if p.total > 0 {
		share = float64(n) / float64(p.total)
	}
	text := fmt.Sprintf("%4.0f s  %3.0f %%  %s messages  %s/s", now.Seconds(), 100*min(share, 1), cli.SI(float64(n), ""), cli.SI(rate, ""))
	if p.bytes > 0 {
		text += "  " + cli.SI(8*rate*float64(p.bytes), "b/s")
	}
	if p99 > 0 {
		text += "  p99 " + cli.SI(p99/1e6, "s")
	}
	return text + "  " + cli.Bars(p.past)
}
