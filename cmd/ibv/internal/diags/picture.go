package diags

import (
	"fmt"
	"html"
	"io"
)

// The picture's measures.
const (
	boxWidth, boxHeight = 200, 56
	boxGap, rowGap      = 40, 130
	margin              = 40
)

// A place is the position of a node in the picture.
type place struct{ x, y int }

// Picture draws the nodes and links as SVG: switches above, adapters and routers below. Links that
// are not active are dashed.
func (f *Fabric) Picture(w io.Writer) error {
	rows := [2][]*node{}
	for _, n := range f.nodes {
		row := 1
		if n.isSwitch() {
			row = 0
		}
		rows[row] = append(rows[row], n)
	}
	widest := max(len(rows[0]), len(rows[1]))
	width := 2*margin + widest*(boxWidth+boxGap) - boxGap
	places := make(map[*node]place)
	for row, nodes := range rows {
		// The shorter row is centred.
		begin := (width - len(nodes)*(boxWidth+boxGap) + boxGap) / 2
		for i, n := range nodes {
			places[n] = place{begin + i*(boxWidth+boxGap), margin + row*(boxHeight+rowGap)}
		}
	}
	height := 2*margin + 2*boxHeight + rowGap
	s := &svg{w: w}
	s.print(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	s.print(`<rect width="100%%" height="100%%" fill="white"/>`)
	drawn := make(map[*port]bool)
	for _, n := range f.nodes {
		for _, p := range n.all() {
			if p.remote != nil && !drawn[p] {
				drawn[p], drawn[p.remote] = true, true
				s.link(p, places[n], places[p.remote.node])
			}
		}
	}
	for _, n := range f.nodes {
		s.node(n, places[n])
	}
	s.print(`</svg>`)
	return s.err
}

// An svg writes lines until one fails.
type svg struct {
	w   io.Writer
	err error
}

func (s *svg) print(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format+"\n", args...)
	}
}

// link draws a line from one node to another. Between nodes of the same row it is an arc.
func (s *svg) link(p *port, a, b place) {
	const active = 4
	dashes := ""
	if p.get("LinkState") != active {
		dashes = ` stroke-dasharray="6 4"`
	}
	x1, x2, y1, y2 := a.x+boxWidth/2, b.x+boxWidth/2, a.y+boxHeight/2, b.y+boxHeight/2
	middleX, middleY := (x1+x2)/2, (y1+y2)/2
	if a.y == b.y {
		middleY += boxHeight // below the boxes between them
	}
	s.print(`<path d="M %d %d Q %d %d %d %d" fill="none" stroke="#446"%s/>`, x1, y1, middleX, 2*middleY-(y1+y2)/2, x2, y2, dashes)
	width, speed := p.rate()
	s.print(`<text x="%d" y="%d" text-anchor="middle" fill="#446">%d – %d, %s</text>`, middleX, middleY, p.number, p.remote.number, html.EscapeString(width+speed))
}

func (s *svg) node(n *node, at place) {
	fill := "#e8f0fe"
	if n.isSwitch() {
		fill = "#fff3d6"
	}
	var lid uint64
	for _, p := range n.all() {
		lid = p.lid()
	}
	s.print(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="#446"/>`, at.x, at.y, boxWidth, boxHeight, fill)
	const perLine = 28
	name := n.name()
	if len(name) > perLine {
		name = name[:perLine-1] + "…"
	}
	for line, text := range []string{name, fmt.Sprintf("LID %d, %016x", lid, n.get("Guid"))} {
		s.print(`<text x="%d" y="%d" text-anchor="middle">%s</text>`, at.x+boxWidth/2, at.y+22+20*line, html.EscapeString(text))
	}
}
