package xfer

import (
	"fmt"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/xfer"
)

// A progress is the line of the terminal.
type progress struct {
	total int64
	done  func() int64
	stats func() xfer.PeerStats
	last  []Share
	at    time.Duration
}

// every is how often the line is rewritten.
const every = 500 * time.Millisecond

// text says how far the transfer is after a time, and how fast each rail was since the last call.
func (p *progress) text(now time.Duration) string {
	n := p.done()
	rails := shares(p.stats())
	text := bar(float64(n)/float64(max(p.total, 1)), 20) + fmt.Sprintf(" %s of %s", cli.SI(float64(n), "B"), cli.SI(float64(p.total), "B"))
	for i, r := range rails {
		before := uint64(0)
		if i < len(p.last) {
			before = p.last[i].Bytes
		}
		text += fmt.Sprintf("  %s %s", r.Rail, cli.SI(1e9*gbits(r.Bytes-before, now-p.at), "b/s"))
	}
	if n > 0 && n < p.total {
		left := time.Duration(float64(now) * float64(p.total-n) / float64(n))
		text += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	p.last, p.at = rails, now
	return text
}

// bar draws a share of a whole.
func bar(share float64, width int) string {
	share = min(share, 1)
	full := int(share * float64(width))
	return fmt.Sprintf("%3.0f %% [%s%s]", 100*share, strings.Repeat("=", full), strings.Repeat(" ", width-full))
}

// shares returns what each rail has carried, in the rails' order.
func shares(s xfer.PeerStats) []Share {
	all := []Share{}
	for _, l := range s.Lanes {
		i := 0
		for i < len(all) && all[i].Rail != l.Rail {
			i++
		}
		if i == len(all) {
			all = append(all, Share{Rail: l.Rail})
		}
		all[i].Bytes += l.Read + l.Written
	}
	return all
}

func gbits[T uint64 | int64](bytes T, took time.Duration) float64 {
	return float64(bytes) * 8 / float64(max(took, 1))
}
