package figure

import (
	"cmp"
	"slices"
	"time"
)

// Sizes, in the SVG's units.
const (
	margin     = 28
	boxWidth   = 400
	boxHeight  = 28
	rowPitch   = 37
	gutter     = 210 // between lanes
	timeWidth  = 76
	stripPitch = 30
	stripWidth = 17
	gapHeight  = 20
	headHeight = 62 // of a lane
	maxStrips  = 3
)

// longPause is the shortest pause that is marked.
const longPause = 100 * time.Millisecond

// A column is the position of a lane.
type column struct {
	*lane
	box      float64 // left edge of its boxes
	strips   []*qp
	mirrored bool // strips and times are on the right
	start    time.Time
}

// strip returns the left edge of a QP's states.
func (c *column) strip(i int) float64 {
	if c.mirrored {
		return c.box + boxWidth + 14 + float64(i*stripPitch)
	}
	return c.box - 14 - stripWidth - float64(i*stripPitch)
}

// time returns the position of times, on the side away from the arrows.
func (c *column) time() (x float64, anchor string) {
	n := float64(len(c.strips) * stripPitch)
	if c.mirrored {
		return c.box + boxWidth + 14 + n, "start"
	}
	return c.box - 14 - n, "end"
}

// A plan is the position of all elements.
type plan struct {
	columns []*column
	arrows  []arrow
	top     []float64         // y of each row
	pauses  map[*item]float64 // seconds of the pause before an item
	width   float64
	height  float64
}

// layout positions all elements. Lanes are side by side, and time runs down each lane. The end of
// an arrow is never above its beginning.
func (f *Figure) layout() *plan {
	f.findArrows()
	p := &plan{arrows: f.arrows, pauses: make(map[*item]float64)}
	var lanes []*lane
	for _, l := range f.lanes {
		if len(l.items) > 0 {
			lanes = append(lanes, l)
		}
	}
	x := float64(margin)
	for k, l := range lanes {
		c := &column{lane: l, mirrored: len(lanes) == 2 && k == 1, start: l.items[0].first}
		c.strips = l.strips()
		side := float64(timeWidth + len(c.strips)*stripPitch + 14)
		if !c.mirrored {
			x += side
		}
		c.box = x
		x += boxWidth
		if c.mirrored {
			x += side
		}
		if k < len(lanes)-1 {
			x += gutter
		}
		p.columns = append(p.columns, c)
	}
	p.width = max(x+margin, 640)
	p.rows(f.skews(lanes))
	return p
}

// strips returns the QPs whose states are shown: those that changed state.
func (l *lane) strips() []*qp {
	var out []*qp
	for _, q := range l.qps {
		if len(q.states) > 1 {
			out = append(out, q)
		}
	}
	slices.SortStableFunc(out, func(a, b *qp) int { return cmp.Compare(len(b.states), len(a.states)) })
	return out[:min(len(out), maxStrips)]
}

// skews returns how far the clock of each lane's machine is behind the first one's. It is the
// least correction with which no message arrives before it was sent.
func (f *Figure) skews(lanes []*lane) map[*lane]time.Duration {
	skew := make(map[int]time.Duration) // by source
	for _, a := range f.arrows {
		from, to := a.fromLane.source, a.toLane.source
		if from == to || a.to == nil {
			continue
		}
		sent := a.from.first.Add(skew[from])
		seen := a.to.end.Add(skew[to])
		if late := sent.Sub(seen); late > 0 {
			skew[to] += late
		}
	}
	out := make(map[*lane]time.Duration)
	for _, l := range lanes {
		out[l] = skew[l.source]
	}
	return out
}

// rows gives each item a row and each row a height.
func (p *plan) rows(skew map[*lane]time.Duration) {
	type placed struct {
		*item
		column *column
		at     time.Time
	}
	var all []placed
	for _, c := range p.columns {
		for k, i := range c.items {
			i.row = -1
			all = append(all, placed{i, c, i.first.Add(skew[c.lane])})
			if k > 0 {
				if pause := i.first.Sub(c.items[k-1].end); pause >= longPause {
					p.pauses[i] = pause.Seconds()
				}
			}
		}
	}
	// Order by time, but keep the order within a lane, whose threads overlap.
	latest := make(map[*column]time.Time)
	for k := range all {
		if at := latest[all[k].column]; all[k].at.Before(at) {
			all[k].at = at
		}
		latest[all[k].column] = all[k].at
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.at.Compare(b.at) })
	next := make(map[*column]int)
	rows := 0
	for _, i := range all {
		row := next[i.column]
		for _, a := range p.arrows {
			if a.to != i.item || a.from.row < 0 {
				continue
			}
			need := a.from.row
			if a.kind != message {
				need++ // to show which was first
			}
			row = max(row, need)
		}
		i.item.row = row
		next[i.column] = row + 1
		rows = max(rows, row+1)
	}
	above, below := make([]float64, rows), make([]float64, rows)
	for _, c := range p.columns {
		for k, i := range c.items {
			if p.pauses[i] > 0 {
				above[i.row] = gapHeight
			}
			if i.loop != nil && (k+1 == len(c.items) || c.items[k+1].loop != i.loop) {
				below[i.row] = gapHeight
			}
		}
	}
	y := float64(margin + headHeight + 50)
	for r := range rows {
		y += above[r]
		p.top = append(p.top, y)
		y += rowPitch + below[r]
	}
	p.height = y + 96
}

// middle returns the y at which an item's arrows begin and end.
func (p *plan) middle(i *item) float64 { return p.top[i.row] + boxHeight/2 }
