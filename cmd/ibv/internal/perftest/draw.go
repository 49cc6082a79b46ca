package perftest

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// Draw draws one result, or compares several. They must be all latencies or all bandwidths.
func Draw(results ...*Result) (*plot.Page, error) {
	latencies := 0
	for _, r := range results {
		if r.Sizes[0].Latency != nil {
			latencies++
		}
	}
	page := &plot.Page{Title: title(results)}
	for i, r := range results {
		page.Lines = append(page.Lines, label(results, i)+r.describe(), r.costs()+" "+r.Limit)
	}
	switch latencies {
	case 0:
		page.Panels = drawBandwidths(results)
	case len(results):
		page.Panels = drawLatencies(results)
	default:
		return nil, errors.New("latencies and bandwidths can't be compared")
	}
	return page, nil
}

func title(results []*Result) string {
	var names []string
	for _, r := range results {
		if len(names) == 0 || names[len(names)-1] != r.Test {
			names = append(names, r.Test)
		}
	}
	return "ibv " + strings.Join(names, " and ")
}

// label returns a result's letter, if there are several results.
func label(results []*Result, i int) string {
	if len(results) == 1 {
		return ""
	}
	return string(rune('A'+i)) + ": "
}

func (r *Result) describe() string {
	text := r.Host
	if r.Peer != "" {
		text += " to " + r.Peer
	}
	text += fmt.Sprintf(", %s, %s of %s, %s, MTU %d", r.Device, r.Link, cli.SI(r.LinkGbits*1e9, "b/s"), r.Connection, r.MTU)
	if r.QPs > 1 {
		text += fmt.Sprintf(", %d queue pairs", r.QPs)
	}
	if r.Duplex {
		text += ", both directions"
	}
	return text + r.Time.Format(", 2 Jan 2006 15:04 MST")
}

// costs returns a sentence with the cost of the messages.
func (r *Result) costs() string {
	text := fmt.Sprintf("CPU for each message: %s here", cli.SI(r.CPU.Local/1e6, "s"))
	if r.CPU.Remote != nil {
		text += fmt.Sprintf(", %s at the other side", cli.SI(*r.CPU.Remote/1e6, "s"))
	}
	return text + "."
}

func drawBandwidths(results []*Result) []plot.Panel {
	sizes := plot.Axis{Label: "size of a message", Log: true, Name: plot.Bytes}
	for _, r := range results {
		for _, s := range r.Sizes {
			sizes.Ticks = addSize(sizes.Ticks, s.Bytes)
		}
	}
	sizes.Ticks = thin(sizes.Ticks)
	bandwidth := plot.Chart{Title: "Bandwidth", X: sizes, Y: plot.Axis{Label: "bandwidth", Name: gigabits}}
	rate := plot.Chart{Title: "Messages", X: sizes, Y: plot.Axis{Label: "messages per second"}}
	for i, r := range results {
		average := plot.Series{Name: label(results, i) + "average", Colour: i, Marks: true}
		limit := plot.Series{Name: label(results, i) + "limit of the link", Colour: i, Dashed: true}
		messages := plot.Series{Colour: i, Marks: true}
		if len(results) > 1 {
			messages.Name = label(results, i) + r.Test
		}
		for _, s := range r.Sizes {
			x := float64(s.Bytes)
			average.Points = append(average.Points, plot.Point{X: x, Y: s.Bandwidth.Average})
			messages.Points = append(messages.Points, plot.Point{X: x, Y: s.Bandwidth.Messages})
			if s.Bandwidth.Limit > 0 {
				limit.Points = append(limit.Points, plot.Point{X: x, Y: s.Bandwidth.Limit})
			}
		}
		if len(limit.Points) == 1 {
			// A single size also gets a line.
			p := limit.Points[0]
			limit.Points = []plot.Point{{X: p.X / 1.5, Y: p.Y}, {X: p.X * 1.5, Y: p.Y}}
		}
		bandwidth.Series = append(bandwidth.Series, average)
		if len(limit.Points) > 0 {
			bandwidth.Series = append(bandwidth.Series, limit)
		}
		rate.Series = append(rate.Series, messages)
	}
	return []plot.Panel{bandwidth, rate}
}

// addSize adds a tick for a size, unless it exists. Ticks are in the order of sizes.
func addSize(ticks []plot.Tick, size int) []plot.Tick {
	at := float64(size)
	i := 0
	for i < len(ticks) && ticks[i].At < at {
		i++
	}
	if i < len(ticks) && ticks[i].At == at {
		return ticks
	}
	ticks = append(ticks[:i:i], append([]plot.Tick{{At: at, Name: plot.Bytes(at)}}, ticks[i:]...)...)
	return ticks
}

// thin leaves out every other tick until there is room for the names.
func thin(ticks []plot.Tick) []plot.Tick {
	const most = 12
	for len(ticks) > most {
		var kept []plot.Tick
		for i := 0; i < len(ticks); i += 2 {
			kept = append(kept, ticks[i])
		}
		ticks = kept
	}
	return ticks
}

// drawLatencies draws the latencies of the largest size of each result, and over sizes if there
// are several.
func drawLatencies(results []*Result) (panels []plot.Panel) {
	latency := plot.Axis{Label: "latency", Log: true, Name: microseconds}
	distribution := plot.Chart{Title: "Distribution", X: latency, Y: plot.Axis{Label: "of the messages", Name: percent}}
	tail := plot.Chart{Title: "Percentiles", X: plot.Axis{Label: "percentile", Log: true, Name: beyond}, Y: latency}
	over := plot.Chart{Title: "Course: mean, and from the least to the largest", X: plot.Axis{Label: "time", Name: seconds}, Y: latency}
	several := false
	sizes := plot.Chart{Title: "Over sizes", X: plot.Axis{Label: "size of a message", Log: true, Name: plot.Bytes}, Y: latency}
	deepest := 0.0
	for i, r := range results {
		last := r.Sizes[len(r.Sizes)-1]
		l := last.Latency
		name := label(results, i) + plot.Bytes(float64(last.Bytes))
		total := 0.0
		for _, b := range l.Buckets {
			total += float64(b.Count)
		}
		d := plot.Series{Name: name, Colour: i, Filled: true}
		for j, b := range l.Buckets {
			// Between buckets that aren't adjacent, the line is at zero.
			const step = 1.022 // of a bucket
			if j > 0 && b.Time > l.Buckets[j-1].Time*step*1.01 {
				d.Points = append(d.Points, plot.Point{X: l.Buckets[j-1].Time * step, Y: 0}, plot.Point{X: b.Time / step, Y: 0})
			}
			d.Points = append(d.Points, plot.Point{X: b.Time, Y: 100 * float64(b.Count) / total})
		}
		distribution.Series = append(distribution.Series, d)
		p := plot.Series{Name: name, Colour: i}
		for _, q := range l.Percentiles {
			x := 100 / (100 - q.Percent)
			deepest = max(deepest, x)
			p.Points = append(p.Points, plot.Point{X: x, Y: q.Time})
		}
		tail.Series = append(tail.Series, p)
		// Of two, the slower one has its marks above.
		below := len(results) == 2 && results[1-i].Sizes[len(results[1-i].Sizes)-1].Latency.at(50) > l.at(50)
		for _, q := range []float64{50, 99} {
			text := fmt.Sprintf("p%g %s", q, microseconds(l.at(q)))
			at := plot.Mark{Point: plot.Point{X: 100 / (100 - q), Y: l.at(q)}, Text: text, Colour: i, Below: below, Before: q > 50}
			if len(results) <= 2 {
				tail.Marks = append(tail.Marks, at)
			}
			if len(results) == 1 {
				at.X, at.Before, at.Across, at.Below = 0, false, true, q == 50
				over.Marks = append(over.Marks, at)
			}
		}
		c := plot.Series{Name: name, Colour: i}
		for _, s := range l.Course {
			c.Points = append(c.Points, plot.Point{X: s.Second, Y: s.Average})
			c.Band = append(c.Band, plot.Range{X: s.Second, Low: s.Least, High: s.Most})
		}
		over.Series = append(over.Series, c)
		m := plot.Series{Name: label(results, i) + "typical, and to the 99th percentile", Colour: i, Marks: true}
		for _, s := range r.Sizes {
			x := float64(s.Bytes)
			sizes.X.Ticks = addSize(sizes.X.Ticks, s.Bytes)
			m.Points = append(m.Points, plot.Point{X: x, Y: s.Latency.Typical})
			m.Band = append(m.Band, plot.Range{X: x, Low: s.Latency.Typical, High: s.Latency.at(99)})
		}
		several = several || len(r.Sizes) > 1
		sizes.Series = append(sizes.Series, m)
	}
	for _, at := range []float64{1, 2, 10, 100, 1e3, 1e4, 1e5} {
		if at <= max(deepest, 100) {
			tail.X.Ticks = append(tail.X.Ticks, plot.Tick{At: at, Name: beyond(at)})
		}
	}
	if several {
		sizes.X.Ticks = thin(sizes.X.Ticks)
		panels = append(panels, sizes)
	}
	return append(panels, distribution, tail, over)
}

func gigabits(v float64) string     { return cli.SI(v*1e9, "b/s") }
func microseconds(v float64) string { return cli.SI(v/1e6, "s") }
func seconds(v float64) string      { return cli.SI(v, "s") }
func percent(v float64) string      { return cli.SI(v, "%") }

// beyond names the percentile beyond which is one of n messages.
func beyond(n float64) string { return fmt.Sprintf("%.6g %%", 100-100/n) }

// at returns the time that a percentage of the messages doesn't exceed.
func (l *Latency) at(percent float64) float64 {
	for _, p := range l.Percentiles {
		if p.Percent >= percent-1e-6 {
			return p.Time
		}
	}
	return math.Max(l.Most, l.Typical)
}
