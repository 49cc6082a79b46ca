package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Chart has lines over two axes.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// An Axis maps values to places.
type Axis struct {
	Label string
	Log   bool
	Ticks []Tick                 // none: round numbers
	Name  func(v float64) string // label of a round number; nil: the number
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

const (
	chartHeight = 250
	plotLeft    = margin + 62
	plotRight   = pageWidth - margin - 12
	plotTop     = 44 // below the panel's top
	plotBottom  = chartHeight - 42
)

func (Chart) size() (width, height float64) { return pageWidth, chartHeight }

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
	return s
}

// ticks returns the axis's ticks, or round numbers.
func (s scale) ticks(most int) (all []Tick) {
	if s.Ticks != nil {
		return s.Ticks
	}
	name := s.Name
	if name == nil {
		name = number
	}
	add := func(v float64) {
		if v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
			all = append(all, Tick{v, name(v)})
		}
	}
	if s.Log {
		for _, steps := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
			all = nil
			for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
				for _, m := range steps {
					add(m * math.Pow(10, e))
				}
			}
			if len(all) <= most {
				break
			}
		}
		if len(all) >= 2 {
			return all
		}
		all = nil // less than a decade: ticks as on a linear axis
	}
	step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/float64(most))))
	for _, m := range []float64{1, 2, 5, 10, 20} {
		if (s.high-s.low)/(m*step) <= float64(most) {
			step *= m
			break
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high*(1+1e-9); v += step {
		all = append(all, Tick{v, name(math.Round(v/step*1e6) / 1e6 * step)})
	}
	return all
}

// number writes a number with as many digits as it needs, at most three.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// Bytes names a size.
func Bytes(v float64) string {
	switch {
	case v >= 1<<20:
		return fmt.Sprintf("%g MiB", v/(1<<20))
	case v >= 1<<10:
		return fmt.Sprintf("%g KiB", v/(1<<10))
	}
	return fmt.Sprintf("%g B", v)
}

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
	x := newScale(ch.X, xs, plotLeft, plotRight)
	y := newScale(ch.Y, ys, top+plotBottom, top+plotTop)
	if !ch.Y.Log {
		// A bar that begins at 0 is as long as its value. There is room above the largest.
		y.low, y.high = min(0, y.low), y.high*1.06
	}
	c.text(margin, top+16, ch.Title, `font-size="14" font-weight="600"`)
	for _, t := range y.ticks(6) {
		at := y.at(t.At)
		c.line(plotLeft, at, plotRight, at, grid)
		c.text(plotLeft-8, at+4, t.Name, `text-anchor="end" fill="`+faint+`"`)
	}
	for _, t := range x.ticks(12) {
		at := x.at(t.At)
		c.line(at, top+plotTop, at, top+plotBottom, grid)
		c.text(at, top+plotBottom+17, t.Name, `text-anchor="middle" fill="`+faint+`"`)
	}
	c.line(plotLeft, top+plotBottom, plotRight, top+plotBottom, faint)
	c.text((plotLeft+plotRight)/2, top+plotBottom+35, ch.X.Label, `text-anchor="middle"`)
	c.text(margin, top+34, ch.Y.Label, `fill="`+faint+`"`)
	for _, s := range ch.Series {
		s.draw(c, x, y)
	}
	ch.legend(c, top+16)
}

func (s Series) draw(c *canvas, x, y scale) {
	colour := colours[s.Colour%len(colours)]
	if len(s.Band) > 0 {
		var b strings.Builder
		for _, r := range s.Band {
			fmt.Fprintf(&b, "%.1f,%.1f ", x.at(r.X), y.at(r.High))
		}
		for _, r := range slices.Backward(s.Band) {
			fmt.Fprintf(&b, "%.1f,%.1f ", x.at(r.X), y.at(r.Low))
		}
		c.printf(`<polygon points="%s" fill="%s" fill-opacity="0.18"/>`+"\n", strings.TrimSpace(b.String()), colour)
	}
	if len(s.Points) == 0 {
		return
	}
	var b strings.Builder
	for _, p := range s.Points {
		fmt.Fprintf(&b, "%.1f,%.1f ", x.at(p.X), y.at(p.Y))
	}
	places := strings.TrimSpace(b.String())
	if s.Filled {
		c.printf(`<polygon points="%.1f,%.1f %s %.1f,%.1f" fill="%s" fill-opacity="0.25"/>`+"\n",
			x.at(s.Points[0].X), y.from, places, x.at(s.Points[len(s.Points)-1].X), y.from, colour)
	}
	dash := ""
	if s.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	c.printf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"%s/>`+"\n", places, colour, dash)
	if s.Marks {
		for _, p := range s.Points {
			c.printf(`<circle cx="%.1f" cy="%.1f" r="3.2" fill="%s"><title>%s: %s</title></circle>`+"\n",
				x.at(p.X), y.at(p.Y), colour, x.name(p.X), y.name(p.Y))
		}
	}
}

func (s scale) name(v float64) string {
	if s.Name != nil {
		return s.Name(v)
	}
	return number(v)
}

// legend names the series, from the right.
func (ch Chart) legend(c *canvas, y float64) {
	right := float64(plotRight)
	for _, s := range slices.Backward(ch.Series) {
		if s.Name == "" {
			continue
		}
		c.text(right, y, s.Name, `text-anchor="end" fill="`+faint+`"`)
		right -= 6.2*float64(len([]rune(s.Name))) + 10
		dash := ""
		if s.Dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		c.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3"%s/>`+"\n",
			right-22, y-4, right, y-4, colours[s.Colour%len(colours)], dash)
		right -= 40
	}
}
