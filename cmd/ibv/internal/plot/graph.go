package plot

import (
	"fmt"
	"html"
)

// A Graph has boxes in two rows, and links between them.
type Graph struct {
	Boxes []Box
	Links []Join
}

// A Box is a node: a line of text, and a smaller one.
type Box struct {
	Name, More string
	Below      bool // in the second row
}

// A Join is a link between boxes, by their indexes.
type Join struct {
	From, To int
	Text     string
	Dashed   bool
}

const (
	boxWidth, boxHeight = 200, 56
	boxGap, rowGap      = 40, 130
)

// row returns how many boxes a row has.
func (g Graph) row(below bool) (n int) {
	for _, b := range g.Boxes {
		if b.Below == below {
			n++
		}
	}
	return n
}

func (g Graph) size() (width, height float64) {
	n := max(g.row(false), g.row(true))
	return float64(2*margin + n*(boxWidth+boxGap) - boxGap), 2*boxHeight + rowGap + margin
}

func (g Graph) draw(c *canvas, top float64) {
	type place struct{ x, y float64 }
	width, _ := g.size()
	var places []place
	next := map[bool]float64{}
	for _, b := range g.Boxes {
		if _, begun := next[b.Below]; !begun { // the shorter row is centred
			next[b.Below] = (width - float64(g.row(b.Below)*(boxWidth+boxGap)-boxGap)) / 2
		}
		p := place{next[b.Below], top}
		if b.Below {
			p.y += boxHeight + rowGap
		}
		places = append(places, p)
		next[b.Below] += boxWidth + boxGap
	}
	for _, l := range g.Links {
		a, b, dash := places[l.From], places[l.To], ""
		if l.Dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		x1, y1, x2, y2 := a.x+boxWidth/2, a.y+boxHeight/2, b.x+boxWidth/2, b.y+boxHeight/2
		x, y := (x1+x2)/2, (y1+y2)/2
		if a.y == b.y {
			y += boxHeight // an arc, below the boxes between them
		}
		c.printf(`<path d="M %g %g Q %g %g %g %g" fill="none" class="axis"%s><title>%s</title></path>`+"\n", x1, y1, x, 2*y-(y1+y2)/2, x2, y2, dash,
			html.EscapeString(fmt.Sprintf("%s to %s: %s", g.Boxes[l.From].Name, g.Boxes[l.To].Name, l.Text)))
		c.text(x, y, l.Text, `text-anchor="middle" class="faint"`)
	}
	for i, b := range g.Boxes {
		p := places[i]
		c.printf(`<rect x="%g" y="%g" width="%d" height="%d" rx="6" class="none axis"><title>%s</title></rect>`+"\n", p.x, p.y, boxWidth, boxHeight, html.EscapeString(b.Name))
		c.text(p.x+boxWidth/2, p.y+22, shorten(b.Name, boxWidth-12, fontSize), `text-anchor="middle"`)
		c.text(p.x+boxWidth/2, p.y+42, b.More, `text-anchor="middle" class="faint"`)
	}
}
