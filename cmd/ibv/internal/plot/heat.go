package plot

import (
	"fmt"
	"math"
	"slices"
)

// A Heat map has a coloured cell for each pair of a row and a column.
type Heat struct {
	Title    string
	Names    []string    // of the rows, and of the columns
	RowLabel string      // the rows' label
	ColLabel string      // the columns' label
	Values   [][]float64 // by row and column; NaN: not measured
	Unit     string
	More     bool // more is better
}

const (
	cellLeft = margin + 150
	cellTop  = 74
)

// cell returns the size of a cell. If there are many cells, they are small, without text.
func (h Heat) cell() (width, height float64) {
	switch n := len(h.Names); {
	case n <= 8:
		return 68, 30
	case n <= 16:
		return 42, 24
	case n <= 32:
		return 20, 16
	}
	return max(4, 640/float64(len(h.Names))), max(4, 480/float64(len(h.Names)))
}

func (h Heat) size() (width, height float64) {
	w, t := h.cell()
	n := float64(len(h.Names))
	return cellLeft + n*w + 110, cellTop + n*t + 20
}

// The colours go from the worst value to the best.
var ramp = [][3]float64{{178, 34, 52}, {240, 140, 70}, {252, 226, 150}, {150, 205, 190}, {40, 120, 165}}

// shade returns a colour between worst (0) and best (1), and the colour of
// text on it.
func shade(share float64) (colour, text string) {
	at := min(max(share, 0), 1) * float64(len(ramp)-1)
	i := min(int(at), len(ramp)-2)
	f := at - float64(i)
	var rgb [3]int
	for j := range rgb {
		rgb[j] = int(math.Round(ramp[i][j]*(1-f) + ramp[i+1][j]*f))
	}
	text = ink
	if light := 299*rgb[0] + 587*rgb[1] + 114*rgb[2]; light < 130000 {
		text = "white"
	}
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2]), text
}

func (h Heat) draw(c *canvas, top float64) {
	var all []float64
	for _, row := range h.Values {
		for _, v := range row {
			if !math.IsNaN(v) {
				all = append(all, v)
			}
		}
	}
	low, high := 0.0, 1.0
	if len(all) > 0 {
		low, high = slices.Min(all), slices.Max(all)
	}
	// Values that are nearly the same have nearly the same colour.
	if span := 0.25 * high; high-low < span {
		if h.More {
			low = high - span
		} else {
			high = low + span
		}
	}
	share := func(v float64) float64 {
		s := (v - low) / (high - low)
		if !h.More {
			s = 1 - s
		}
		return s
	}
	c.text(margin, top+16, h.Title, `font-size="14" font-weight="600"`)
	c.text(margin, top+cellTop-10, h.RowLabel, `fill="`+faint+`"`)
	w, t := h.cell()
	n := len(h.Names)
	c.text(cellLeft+float64(n)*w/2, top+36, h.ColLabel, `text-anchor="middle" fill="`+faint+`"`)
	every := max(1, int(math.Ceil(13/t)))
	for i, name := range h.Names {
		y := top + cellTop + float64(i)*t
		if i%every == 0 {
			c.text(cellLeft-8, y+t/2+4, shorten(name, 21), `text-anchor="end"`)
			c.text(cellLeft+(float64(i)+0.5)*w, top+cellTop-10, fmt.Sprint(i), `text-anchor="middle" fill="`+faint+`"`)
		}
		for j, v := range h.Values[i] {
			x := cellLeft + float64(j)*w
			fill, text := "#f0f2f4", ink
			says := "not measured"
			if !math.IsNaN(v) {
				fill, text = shade(share(v))
				says = fmt.Sprintf("%.4g %s", v, h.Unit)
			}
			if i == j {
				continue
			}
			c.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s, %s: %s</title></rect>`+"\n",
				x+0.5, y+0.5, w-1, t-1, fill, escape(name), escape(h.Names[j]), says)
			switch {
			case n > 16:
			case math.IsNaN(v):
				c.text(x+w/2, y+t/2+4, "–", `text-anchor="middle" fill="`+faint+`"`)
			default:
				c.text(x+w/2, y+t/2+4, number(v), `text-anchor="middle" font-size="11" fill="`+text+`"`)
			}
		}
	}
	// The legend of colours.
	x := cellLeft + float64(n)*w + 24
	const steps, height = 24, 120.0
	tall := min(height, float64(n)*t)
	for i := range steps {
		v := high - (high-low)*float64(i)/(steps-1)
		fill, _ := shade(share(v))
		c.printf(`<rect x="%.1f" y="%.1f" width="14" height="%.2f" fill="%s"/>`+"\n", x, top+cellTop+tall*float64(i)/steps, tall/steps+0.3, fill)
	}
	c.text(x+20, top+cellTop+10, number(high), `fill="`+faint+`"`)
	c.text(x+20, top+cellTop+tall, number(low), `fill="`+faint+`"`)
	c.text(x, top+cellTop-10, h.Unit, `fill="`+faint+`"`)
}

// shorten cuts the end of a long name.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
