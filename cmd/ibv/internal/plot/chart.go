package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// A Chart has lines over two axes.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
	Marks  []Mark
}

// An Axis maps values to places.
type Axis struct {
	Label string
	Log   bool
	Ticks []Tick                 // none: round numbers
	Name  func(v float64) string // a value with its unit; nil: the number
}

// A Tick is a labelled place of an axis.
type Tick struct {
	At   float64
	Name string
}

// A Series is a line, with a band around it.
type Series struct {
	Name   string
	Points []Point
	Band   []Range // drawn behind the line
	Colour int     // series of one colour belong together
	Dashed bool
	Marks  bool // a dot at each point
	Filled bool // down to the axis
}

// A Point is a point of a line.
type Point struct{ X, Y float64 }

// A Range is a band's extent at one place.
type Range struct{ X, Low, High float64 }

// A Mark is a place with a text, beside the lines.
type Mark struct {
	Point
	Text   string
	Colour int
	Below  bool // the text is below the place
	Before bool // it ends at the place, instead of beginning there
	Across bool // a line across the chart
}

const (
	chartHeight = 250
	plotLeft    = margin + 62
	plotRight   = pageWidth - margin - 12
	plotTop     = 44 // below the panel's top
	plotBottom  = chartHeight - 42
	legendRow   = 16
)

func (ch Chart) size() (width, height float64) {
	_, rows := ch.legend()
	return pageWidth, chartHeight + legendRow*float64(rows-1)
}

// A scale maps an axis's values to places.
type scale struct {
	Axis
	low, high float64 // of values
	from, to  float64 // of places
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.Log {
		low, high, v = math.Log(low), math.Log(high), math.Log(max(v, s.low))
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// newScale finds the range of an axis. On a logarithmic axis, it ignores values without a
// logarithm.
func newScale(a Axis, values []float64, from, to float64) scale {
	s := scale{Axis: a, from: from, to: to}
	if a.Log {
		values = slices.DeleteFunc(values, func(v float64) bool { return v <= 0 })
	}
	for _, t := range a.Ticks {
		values = append(values, t.At)
	}
	if len(values) == 0 {
		values = []float64{1}
	}
	s.low, s.high = slices.Min(values), slices.Max(values)
	switch {
	case a.Log && s.low == s.high:
		s.low, s.high = s.low/2, s.high*2
	case !a.Log && s.low == s.high:
		s.low, s.high = min(0, s.low), max(s.high, s.low+1)
	}
	if s.Name == nil {
		s.Name = number
	}
	return s
}

// ticks returns the axis's ticks, or round numbers that are at least room apart. On a logarithmic axis, the
// base has one, too.
func (s scale) ticks(room float64) (all []Tick) {
	if s.Ticks != nil {
		return s.Ticks
	}
	apart := func(a, b float64) bool { return math.Abs(s.at(a)-s.at(b)) >= room }
	if s.Log {
		for _, steps := range [][]float64{{1, 1.5, 2, 3, 5, 7}, {1, 2, 3, 5}, {1, 2, 5}, {1, 3}, {1}} {
			var at []float64
			for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
				for _, m := range steps {
					if v := m * math.Pow(10, e); v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
						at = append(at, v)
					}
				}
			}
			if len(at) < 2 {
				break
			}
			fits := true
			for i := range at[1:] {
				fits = fits && apart(at[i], at[i+1])
			}
			if fits {
				for len(at) > 0 && !apart(s.low, at[0]) {
					at = at[1:]
				}
				at = append([]float64{s.low}, at...)
				for _, v := range at {
					all = append(all, Tick{v, s.Name(v)})
				}
				return all
			}
		}
		// So few: ticks as on a linear axis.
	}
	least := (s.high - s.low) * room / math.Abs(s.to-s.from)
	step := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= least {
			step *= m
			break
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high*(1+1e-9); v += step {
		all = append(all, Tick{v, s.Name(math.Round(v/step*1e6) / 1e6 * step)})
	}
	return all
}

// number writes a number with three digits.
func number(v float64) string { return cli.SI(v, "") }

// Bytes names a size.
func Bytes(v float64) string { return cli.Bytes(uint64(v)) }

func (ch Chart) draw(c *canvas, top float64) {
	var xs, ys []float64
	for _, s := range ch.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
		for _, r := range s.Band {
			xs, ys = append(xs, r.X), append(ys, r.Low, r.High)
		}
	}
	c.text(margin, top+16, ch.Title, `font-size="14" font-weight="600"`)
	legend, rows := ch.legend()
	for _, l := range legend {
		s := ch.Series[l.series]
		c.line(l.x, top+l.y+12, l.x+22, top+l.y+12, s.stroke(3))
		c.text(l.x+28, top+l.y+16, s.Name, `class="faint"`)
	}
	top += legendRow * float64(rows-1)
	x := newScale(ch.X, xs, plotLeft, plotRight)
	y := newScale(ch.Y, ys, top+plotBottom, top+plotTop)
	if ch.Y.Log {
		y.from -= 14 // room for what is below the least value
	} else {
		// A bar that begins at 0 is as long as its value. There is room above the largest.
		y.low, y.high = min(0, y.low), y.high*1.06
	}
	for _, t := range y.ticks(20) {
		at := y.at(t.At)
		c.line(plotLeft, at, plotRight, at, `class="grid"`)
		c.text(plotLeft-8, at+4, t.Name, `text-anchor="end" class="faint"`)
	}
	for _, t := range x.ticks(52) {
		at := x.at(t.At)
		c.line(at, top+plotTop, at, top+plotBottom, `class="grid"`)
		c.text(at, top+plotBottom+17, t.Name, `text-anchor="middle" class="faint"`)
	}
	c.line(plotLeft, top+plotBottom, plotRight, top+plotBottom, `class="axis"`)
	c.text((plotLeft+plotRight)/2, top+plotBottom+35, ch.X.Label, `text-anchor="middle"`)
	c.text(margin, top+34, ch.Y.Label, `class="faint"`)
	for _, s := range ch.Series {
		s.draw(c, x, y)
	}
	for _, m := range ch.Marks {
		m.draw(c, x, y)
	}
}

// stroke returns the attributes of the series's line.
func (s Series) stroke(width int) string {
	dash := ""
	if s.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	return fmt.Sprintf(`class="c%d" stroke="currentColor" stroke-width="%d" stroke-linejoin="round"%s`, s.Colour%4, width, dash)
}

func (s Series) draw(c *canvas, x, y scale) {
	area := func(places []string, opacity float64) {
		c.printf(`<polygon points="%s" class="c%d" fill="currentColor" fill-opacity="%g"/>`+"\n", strings.Join(places, " "), s.Colour%4, opacity)
	}
	place := func(vx, vy float64) string { return fmt.Sprintf("%.1f,%.1f", x.at(vx), y.at(vy)) }
	if len(s.Band) > 0 {
		var places []string
		for _, r := range s.Band {
			places = append(places, place(r.X, r.High))
		}
		for _, r := range slices.Backward(s.Band) {
			places = append(places, place(r.X, r.Low))
		}
		area(places, 0.18)
	}
	if len(s.Points) == 0 {
		return
	}
	var places []string
	for _, p := range s.Points {
		places = append(places, place(p.X, p.Y))
	}
	if s.Filled {
		first, last := s.Points[0].X, s.Points[len(s.Points)-1].X
		area(append([]string{place(first, y.low)}, append(places, place(last, y.low))...), 0.25)
	}
	c.printf(`<polyline points="%s" fill="none" %s/>`+"\n", strings.Join(places, " "), s.stroke(2))
	// A point that isn't marked shows under the pointer.
	look := `r="6" class="hit c%d"`
	if s.Marks {
		look = `r="3.2" class="c%d"`
	}
	for i, p := range s.Points {
		says := fmt.Sprintf("%s: %s", x.Name(p.X), y.Name(p.Y))
		if i < len(s.Band) && len(s.Band) == len(s.Points) {
			says += fmt.Sprintf(" (%s to %s)", y.Name(s.Band[i].Low), y.Name(s.Band[i].High))
		}
		c.printf(`<circle cx="%.1f" cy="%.1f" `+look+` fill="currentColor"><title>%s</title></circle>`+"\n",
			x.at(p.X), y.at(p.Y), s.Colour%4, html.EscapeString(strings.TrimSpace(s.Name+" ")+" "+says))
	}
}

func (m Mark) draw(c *canvas, x, y scale) {
	s := Series{Colour: m.Colour, Dashed: true}
	at, height, up, anchor := x.at(m.X), y.at(m.Y), -8.0, "start"
	if m.Below {
		up = 18
	}
	if m.Before {
		anchor = "end"
	}
	if m.Across {
		up /= 1.4
		c.line(x.from, height, x.to, height, s.stroke(1))
	} else {
		c.printf(`<circle cx="%.1f" cy="%.1f" r="4" class="c%d" fill="currentColor"/>`+"\n", at, height, m.Colour%4)
	}
	c.text(at, height+up, m.Text, fmt.Sprintf(`text-anchor="%s" font-weight="600"`, anchor))
}

// A legendEntry is the place of a series's name, from the panel's corner.
type legendEntry struct {
	series int
	x, y   float64
}

// legend returns the places of the names, and how many rows they take. The first row has the title, too.
func (ch Chart) legend() (all []legendEntry, rows int) {
	x, rows := margin+widthOf(ch.Title, 14)+30, 1
	for i, s := range ch.Series {
		if s.Name == "" {
			continue
		}
		w := 28 + widthOf(s.Name, fontSize)
		if x+w > plotRight && x > margin {
			x, rows = margin, rows+1
		}
		all = append(all, legendEntry{i, x, legendRow * float64(rows-1)})
		x += w + 18
	}
	return all, rows
}
