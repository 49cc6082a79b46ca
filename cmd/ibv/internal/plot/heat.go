package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// A Heat map has a coloured cell for each pair of a row and a column.
type Heat struct {
	Title    string
	Names    []string    // of the ranks, which are the rows and the columns
	RowLabel string      // what a rank is in its row
	ColLabel string      // and in its column
	Values   [][]float64 // by row and column; NaN: not measured
	Show     func(v float64) string
	More     bool // more is better
}

const (
	cellLeft = margin + 150
	cellTop  = 52
)

// cell returns the size of a cell. If there are many cells, they are small, without text.
func (h Heat) cell() (width, height float64) {
	switch n := len(h.Names); {
	case n <= 8:
		return 68, 30
	case n <= 16:
		return 48, 24
	case n <= 32:
		return 20, 16
	}
	return max(4, 640/float64(len(h.Names))), max(4, 480/float64(len(h.Names)))
}

func (h Heat) size() (width, height float64) {
	w, t := h.cell()
	n := float64(len(h.Names))
	return cellLeft + n*w + 130, cellTop + n*t + 20
}

// The colours go from the worst value to the best.
var ramp = [][3]float64{{178, 34, 52}, {240, 140, 70}, {252, 226, 150}, {150, 205, 190}, {40, 120, 165}}

// shade returns a colour between worst (0) and best (1), and the class of
// text on it.
func shade(share float64) (colour, text string) {
	at := min(max(share, 0), 1) * float64(len(ramp)-1)
	i := min(int(at), len(ramp)-2)
	f := at - float64(i)
	var rgb [3]int
	for j := range rgb {
		rgb[j] = int(math.Round(ramp[i][j]*(1-f) + ramp[i+1][j]*f))
	}
	text = "onlight"
	if light := 299*rgb[0] + 587*rgb[1] + 114*rgb[2]; light < 130000 {
		text = "ondark"
	}
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2]), text
}

// spread returns the range of the values, and a function that says how good one is, between worst (0) and
// best (1). Values that are nearly the same are about as good.
func (h Heat) spread() (low, high float64, share func(v float64) float64) {
	var all []float64
	for _, v := range slices.Concat(h.Values...) {
		if !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	low, high = 0, 1
	if len(all) > 0 {
		low, high = slices.Min(all), slices.Max(all)
	}
	if span := 0.25 * high; high-low < span {
		if h.More {
			low = high - span
		} else {
			high = low + span
		}
	}
	return low, high, func(v float64) float64 {
		if h.More {
			return (v - low) / (high - low)
		}
		return (high - v) / (high - low)
	}
}

// Text returns the map as blocks of two columns, for a terminal. The better a value, the higher is its block.
func (h Heat) Text(c cli.Palette) string {
	low, high, share := h.spread()
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s row %s column: %s ", h.Title, h.RowLabel, h.ColLabel, h.Show(low))
	for i := range 5 {
		at := float64(i) / 4
		if !h.More {
			at = 1 - at
		}
		b.WriteString(c.Block(at))
	}
	fmt.Fprintf(&b, " %s\n%25s", h.Show(high), "")
	for i := 0; i < len(h.Names); i += 4 {
		fmt.Fprintf(&b, "%-8s", fmt.Sprintf("%2d", i))
	}
	b.WriteString("\n")
	for i, name := range h.Names {
		fmt.Fprintf(&b, "  %18.18s %3d ", name, i)
		for j, v := range h.Values[i] {
			switch {
			case i == j:
				b.WriteString("  ")
			case math.IsNaN(v):
				b.WriteString(c.Dim("??"))
			default:
				b.WriteString(c.Block(share(v)))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (h Heat) draw(c *canvas, top float64) {
	low, high, share := h.spread()
	w, t := h.cell()
	n := len(h.Names)
	c.text(margin, top+16, h.Title, `font-size="14" font-weight="600"`)
	c.text(cellLeft-8, top+cellTop-10, h.RowLabel+" ↓  "+h.ColLabel+" →", `text-anchor="end" class="faint"`)
	everyRow, everyColumn := int(math.Ceil(13/t)), int(math.Ceil((widthOf(fmt.Sprint(n), fontSize)+4)/w))
	for i, name := range h.Names {
		y := top + cellTop + float64(i)*t
		if i%everyRow == 0 {
			c.text(cellLeft-34, y+t/2+4, shorten(name, cellLeft-34-margin, fontSize), `text-anchor="end"`)
			c.text(cellLeft-8, y+t/2+4, fmt.Sprint(i), `text-anchor="end" class="faint"`)
		}
		if i%everyColumn == 0 {
			c.text(cellLeft+(float64(i)+0.5)*w, top+cellTop-10, fmt.Sprint(i), `text-anchor="middle" class="faint"`)
		}
		for j, v := range h.Values[i] {
			if i == j {
				continue
			}
			x := cellLeft + float64(j)*w
			fill, text, says, value := `class="none"`, "faint", "not measured", "–"
			if !math.IsNaN(v) {
				says, value = h.Show(v), number(v)
				fill, text = shade(share(v))
				fill = fmt.Sprintf(`fill="%s"`, fill)
			}
			c.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s><title>%s</title></rect>`+"\n",
				x+0.5, y+0.5, w-1, t-1, fill, html.EscapeString(fmt.Sprintf("%s %s %s %s: %s", h.RowLabel, name, h.ColLabel, h.Names[j], says)))
			if n <= 16 {
				c.text(x+w/2, y+t/2+4, value, `text-anchor="middle" font-size="11" pointer-events="none" class="`+text+`"`)
			}
		}
	}
	// The legend of colours.
	x := cellLeft + float64(n)*w + 24
	const steps, height = 24, 120.0
	tall := min(height, float64(n)*t)
	for i := range steps {
		fill, _ := shade(share(high - (high-low)*float64(i)/(steps-1)))
		c.printf(`<rect x="%.1f" y="%.1f" width="14" height="%.2f" fill="%s"/>`+"\n", x, top+cellTop+tall*float64(i)/steps, tall/steps+0.3, fill)
	}
	c.text(x+20, top+cellTop+10, h.Show(high), `class="faint"`)
	c.text(x+20, top+cellTop+tall, h.Show(low), `class="faint"`)
}
