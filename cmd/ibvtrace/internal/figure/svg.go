package figure

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A style is the appearance of the boxes of a kind.
type style struct{ fill, ink, edge, legend string }

var styles = map[event.Kind]style{
	event.Control: {"#1d3557", "#ffffff", "#1d3557", "control verb: the kernel runs it"},
	event.Data:    {"#d6e6f5", "#12263f", "#8fb3d6", "data verb: in user space only"},
	event.CM:      {"#4a2c7a", "#ffffff", "#4a2c7a", "connection manager"},
	event.Async:   {"#fdecc0", "#3d2c00", "#e0bd5c", "an event was read"},
	event.Map:     {"#eef0f2", "#30363d", "#c3c9d0", "opened, mapped, closed"},
}

func styleOf(k event.Kind) style {
	if s, ok := styles[k]; ok {
		return s
	}
	return styles[event.Map]
}

// The states of a QP and their colors.
var stateColors = []struct{ name, fill, ink string }{
	{"RESET", "#c9ced4", "#20262d"},
	{"INIT", "#f3cf73", "#3d2c00"},
	{"RTR", "#7db8e0", "#0f2b40"},
	{"RTS", "#5aa469", "#ffffff"},
	{"SQD", "#c79a5b", "#2b1a00"},
	{"SQE", "#e08a4b", "#2b1200"},
	{"ERR", "#c0392b", "#ffffff"},
}

const (
	mono = `ui-monospace,'DejaVu Sans Mono','SF Mono',Menlo,Consolas,monospace`
	sans = `system-ui,'DejaVu Sans','Segoe UI',Helvetica,Arial,sans-serif`
)

// Widths of a character, generous because fonts differ.
const (
	monoChar = 7.3
	sansChar = 6.6
)

const (
	failedColor = "#c62828"
	quiet       = "#5b6570"
)

var arrowColors = map[arrowKind]string{message: "#1f7a3a", exchanged: "#7a828b", managed: "#6b3fb0", oneSided: "#1f7a3a"}

var dashOf = map[arrowKind]string{exchanged: ` stroke-dasharray="5 4"`, oneSided: ` stroke-dasharray="2 3"`}

// A canvas collects the SVG.
type canvas struct {
	strings.Builder
	links bool // boxes link to the list below the figure
}

func (c *canvas) put(form string, args ...any) { fmt.Fprintf(c, form, args...) }

// esc escapes text for XML, and replaces characters that XML forbids or that control a terminal.
func esc(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, s)
	return html.EscapeString(s)
}

// fit shortens s to a width.
func fit(s string, width, char float64) string {
	most := int(width / char)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	if most < 2 {
		return ""
	}
	return string([]rune(s)[:most-1]) + "…"
}

// SVG writes the figure.
func (f *Figure) SVG(w io.Writer) error {
	var c canvas
	f.draw(&c)
	_, err := io.WriteString(w, c.String())
	return err
}

func (f *Figure) draw(c *canvas) *plan {
	p := f.layout()
	title := f.Title
	if title == "" {
		title = "RDMA verbs, " + strings.Join(p.names(), " and ")
	}
	c.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="%s" role="img">`+"\n",
		p.width, p.height, p.width, p.height, sans)
	c.put("<title>%s</title>\n", esc(title))
	c.put("<defs>")
	for _, k := range []arrowKind{message, exchanged, managed, oneSided} {
		c.put(`<marker id="tip%d" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 1 L9 5 L0 9 z" fill="%s"/></marker>`, k, arrowColors[k])
	}
	c.put("</defs>\n")
	c.put(`<rect width="100%%" height="100%%" fill="#ffffff"/>` + "\n")
	c.put(`<text x="%d" y="%d" font-size="20" font-weight="700" fill="#12263f">%s</text>`+"\n", margin, margin+16, esc(fit(title, p.width-2*margin, 11)))
	c.put(`<text x="%d" y="%d" font-size="12" fill="%s">%s</text>`+"\n", margin, margin+38, quiet,
		"Time runs down each lane, from its first verb on; arrows tie the lanes together.")
	for _, col := range p.columns {
		f.head(c, col)
	}
	for _, col := range p.columns {
		p.panels(c, col)
		p.states(c, col)
	}
	p.drawArrows(c)
	for _, col := range p.columns {
		for _, i := range col.items {
			p.box(c, col, i)
		}
		p.foot(c, col)
	}
	f.legend(c, p)
	c.put("</svg>\n")
	return p
}

func (p *plan) names() []string {
	var out []string
	for _, c := range p.columns {
		if len(out) == 0 || out[len(out)-1] != c.comm {
			out = append(out, c.comm)
		}
	}
	return out
}

// head draws the heading of a lane.
func (f *Figure) head(c *canvas, col *column) {
	y := float64(margin + 74)
	c.put(`<text x="%.0f" y="%.0f" font-size="16" font-weight="700" fill="#12263f">%s</text>`+"\n", col.box, y, esc(fit(col.comm, boxWidth, 9.5)))
	parts := []string{fmt.Sprintf("process %d", col.pid)}
	if col.device != "" {
		parts = append(parts, col.device)
	}
	if col.source < len(f.Sources) && f.Sources[col.source] != "" {
		parts = append(parts, f.Sources[col.source])
	}
	parts = append(parts, "from "+col.start.UTC().Format("15:04:05.000 UTC"))
	c.put(`<text x="%.0f" y="%.0f" font-size="12" fill="%s">%s</text>`+"\n", col.box, y+19, quiet, esc(fit(strings.Join(parts, " · "), boxWidth+80, sansChar)))
}

// panels marks repeated sequences.
func (p *plan) panels(c *canvas, col *column) {
	group := func(i *item) *loop {
		if i.loop != nil {
			return i.loop
		}
		return i.phase
	}
	for from := 0; from < len(col.items); {
		to := from + 1
		g := group(col.items[from])
		for to < len(col.items) && g != nil && group(col.items[to]) == g {
			to++
		}
		if g != nil && (to-from > 1 || g.count > 0) {
			first, last := col.items[from], col.items[to-1]
			y := p.top[first.row] - 5
			h := p.top[last.row] + boxHeight + 5 - y
			label := ""
			if g.count > 0 {
				h += gapHeight - 4
				label = fmt.Sprintf("these %d, %d times over", to-from, g.count)
			}
			c.put(`<rect x="%.0f" y="%.1f" width="%d" height="%.1f" rx="8" fill="#f5f8fb" stroke="#a9b8c8" stroke-dasharray="4 3"/>`+"\n", col.box-6, y, boxWidth+12, h)
			if label != "" {
				c.put(`<text x="%.0f" y="%.1f" font-size="11" font-style="italic" fill="%s">%s</text>`+"\n", col.box+6, y+h-6, quiet, label)
			}
		}
		from = to
	}
}

// states draws the QPs' states along the lane.
func (p *plan) states(c *canvas, col *column) {
	end := p.top[col.items[len(col.items)-1].row] + boxHeight
	for k, q := range col.strips {
		x := col.strip(k)
		for n, s := range q.states {
			from, to := p.middle(s.from.is()), end
			if n+1 < len(q.states) {
				to = p.middle(q.states[n+1].from.is())
			} else if q.over != nil {
				to = p.middle(q.over.is())
			}
			if n == 0 {
				c.put(`<text x="%.1f" y="%.1f" font-size="10.5" text-anchor="middle" fill="%s">qp %d</text>`+"\n", x+stripWidth/2, from-5, quiet, q.handle)
			}
			if to <= from {
				continue
			}
			fill, ink := "#ffffff", quiet
			for _, sc := range stateColors {
				if sc.name == s.name {
					fill, ink = sc.fill, sc.ink
				}
			}
			c.put(`<g><title>%s</title><rect x="%.1f" y="%.1f" width="%d" height="%.1f" fill="%s"/>`, esc(fmt.Sprintf("qp %d, number %#x: %s", q.handle, q.num, s.name)), x, from, stripWidth, to-from, fill)
			if to-from >= 7*float64(len(s.name))+6 {
				cx, cy := x+stripWidth/2+3.5, (from+to)/2
				c.put(`<text transform="translate(%.1f %.1f) rotate(-90)" font-size="10" font-weight="700" text-anchor="middle" fill="%s">%s</text>`, cx, cy, ink, esc(s.name))
			}
			c.put("</g>\n")
		}
	}
}

func (p *plan) box(c *canvas, col *column, i *item) {
	s := styleOf(i.kind)
	y := p.top[i.row]
	if pause := p.pauses[i]; pause > 0 {
		c.put(`<text x="%d" y="%.1f" font-size="11" font-style="italic" text-anchor="middle" fill="%s">⋮ %s later</text>`+"\n", int(col.box)+boxWidth/2, y-8, quiet, seconds(pause))
	}
	if c.links {
		c.put(`<a href="#%s">`, p.id(col, i))
	}
	c.put(`<g><title>%s</title>`, esc(i.line))
	c.put(`<rect x="%.0f" y="%.1f" width="%d" height="%d" rx="5" fill="%s" stroke="%s"/>`, col.box, y, boxWidth, boxHeight, s.fill, s.edge)
	if i.failed > 0 {
		c.put(`<rect x="%.0f" y="%.1f" width="7" height="%d" fill="%s"/>`, col.box, y, boxHeight, failedColor)
	}
	base := y + boxHeight/2 + 4
	right := col.box + boxWidth - 9
	if i.timed {
		d := text.Duration(i.spent)
		c.put(`<text x="%.0f" y="%.1f" font-size="10.5" text-anchor="end" fill="%s" fill-opacity="0.85">%s</text>`, right, base, s.ink, d)
		right -= float64(utf8.RuneCountInString(d))*6.2 + 9
	}
	if i.count() > 1 {
		n := fmt.Sprintf("× %d", i.count())
		c.put(`<text x="%.1f" y="%.1f" font-size="12" font-weight="700" text-anchor="end" fill="%s">%s</text>`, right, base, s.ink, n)
		right -= float64(utf8.RuneCountInString(n))*7.6 + 9
	}
	verb := fit(i.verb, right-col.box-14, monoChar)
	c.put(`<text x="%.0f" y="%.1f" font-size="12" font-weight="700" font-family="%s" fill="%s">%s</text>`, col.box+14, base, mono, s.ink, esc(verb))
	x := col.box + 14 + float64(utf8.RuneCountInString(verb))*monoChar + 10
	what := i.what()
	if i.failed > 0 {
		failed := i.errno
		if i.failed < i.count() || i.done > 0 {
			failed = fmt.Sprintf("%d failed: %s", i.failed, i.errno)
		}
		if what = strings.TrimSuffix(failed+", "+what, ", "); i.failed == i.count() && i.done == 0 {
			what = failed
		}
	}
	c.put(`<text x="%.1f" y="%.1f" font-size="11.5" fill="%s">%s</text>`, x, base, s.ink, esc(fit(what, right-x, sansChar)))
	c.put("</g>")
	if c.links {
		c.put("</a>")
	}
	tx, anchor := col.time()
	c.put(`<text x="%.1f" y="%.1f" font-size="10.5" text-anchor="%s" fill="%s">%s</text>`+"\n", tx, base, anchor, quiet, since(i.first.Sub(col.start)))
}

func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}

// id returns the ID of an item in the HTML list.
func (p *plan) id(col *column, i *item) string {
	for k, c := range p.columns {
		if c == col {
			return fmt.Sprintf("v%d-%d", k, i.row)
		}
	}
	return ""
}

func (p *plan) foot(c *canvas, col *column) {
	y := p.top[col.items[len(col.items)-1].row] + boxHeight + 22
	var parts []string
	if col.after > 0 {
		parts = append(parts, fmt.Sprintf("… and %d more verbs, which did not fit", col.after))
	}
	if n := len(col.qps) - len(col.strips); n > 0 && len(col.strips) == maxStrips {
		parts = append(parts, fmt.Sprintf("%d more QPs", n))
	}
	if col.ended != "" {
		parts = append(parts, col.ended)
	}
	if len(parts) > 0 {
		c.put(`<text x="%.0f" y="%.1f" font-size="11.5" font-style="italic" fill="%s">%s</text>`+"\n", col.box, y, quiet, esc(strings.Join(parts, "; ")))
	}
}

// drawArrows draws the arrows as labeled curves from box to box.
func (p *plan) drawArrows(c *canvas) {
	column := make(map[*lane]*column)
	for _, col := range p.columns {
		column[col.lane] = col
	}
	used := make(map[*item]int) // number of arrows of an item
	labels := make(map[[2]int]bool)
	for _, a := range p.arrows {
		from, to := column[a.fromLane], column[a.toLane]
		if from == nil || to == nil {
			continue
		}
		spread := func(i *item) float64 {
			used[i]++
			return float64([]int{0, -7, 7}[(used[i]-1)%3])
		}
		x1, x2 := from.box+boxWidth+1, to.box-3
		if from.box > to.box {
			x1, x2 = from.box-1, to.box+boxWidth+3
		}
		y1 := p.middle(a.from) + spread(a.from)
		y2 := y1
		if a.to != nil {
			y2 = p.middle(a.to) + spread(a.to)
		} else {
			x2 -= (x2 - x1) * 0.25 // a one-sided arrow ends before the other lane
		}
		bend := (x2 - x1) * 0.45
		dash := dashOf[a.kind]
		color := arrowColors[a.kind]
		c.put(`<path d="M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f" fill="none" stroke="%s" stroke-width="1.8" marker-end="url(#tip%d)"%s/>`+"\n",
			x1, y1, x1+bend, y1, x2-bend, y2, x2, y2, color, a.kind, dash)
		// Labels are near the beginning, so that those of both directions do not overlap.
		var lx, ly float64
		along := []float64{.3, .42, .2, .55, .65}
		if a.kind == oneSided {
			along = along[3:]
		}
		for _, t := range along {
			lx, ly = bezier(t, x1, x1+bend, x2-bend, x2), bezier(t, y1, y1, y2, y2)
			if cell := [2]int{int(math.Round(lx / 90)), int(math.Round(ly / 14))}; !labels[cell] {
				labels[cell] = true
				break
			}
		}
		c.put(`<text x="%.1f" y="%.1f" font-size="11.5" font-weight="600" text-anchor="middle" fill="%s" stroke="#ffffff" stroke-width="4" paint-order="stroke">%s</text>`+"\n",
			lx, ly-4, color, esc(a.label))
	}
}

func bezier(t, a, b, c, d float64) float64 {
	u := 1 - t
	return u*u*u*a + 3*u*u*t*b + 3*u*t*t*c + t*t*t*d
}

func (f *Figure) legend(c *canvas, p *plan) {
	y := p.height - 56
	x := float64(margin)
	const char = 6
	room := func(s string, before float64) {
		if x > margin && x+before+float64(len(s))*char > p.width-margin {
			x, y = margin, y+22
		}
	}
	used := make(map[string]bool) // what the legend must explain
	for _, col := range p.columns {
		for _, i := range col.items {
			used[styleOf(i.kind).legend] = true
		}
	}
	for _, k := range []event.Kind{event.Control, event.Data, event.CM, event.Async, event.Map} {
		s := styles[k]
		if !used[s.legend] {
			continue
		}
		room(s.legend, 24)
		c.put(`<rect x="%.0f" y="%.0f" width="18" height="13" rx="3" fill="%s" stroke="%s"/>`, x, y-11, s.fill, s.edge)
		c.put(`<text x="%.0f" y="%.0f" font-size="11.5" fill="#30363d">%s</text>`+"\n", x+24, y, s.legend)
		x += 24 + float64(len(s.legend))*char + 20
	}
	y += 22
	x = margin
	for _, a := range []struct {
		kind arrowKind
		text string
	}{{message, "a send, and the receive that it completes"}, {exchanged, "QP number, told outside RDMA"}, {managed, "told by the connection manager"},
		{oneSided, "reads or writes the other side's memory, unnoticed there"}} {
		if !slices.ContainsFunc(p.arrows, func(x arrow) bool { return x.kind == a.kind }) {
			continue
		}
		dash := dashOf[a.kind]
		room(a.text, 38)
		c.put(`<path d="M%.0f %.0f h30" stroke="%s" stroke-width="1.8" marker-end="url(#tip%d)"%s/>`, x, y-4, arrowColors[a.kind], a.kind, dash)
		c.put(`<text x="%.0f" y="%.0f" font-size="11.5" fill="#30363d">%s</text>`+"\n", x+38, y, a.text)
		x += 38 + float64(len(a.text))*char + 20
	}
	if f.omitted > 0 {
		c.put(`<text x="%.0f" y="%.0f" font-size="11.5" fill="%s">%d more processes are not shown</text>`+"\n", x, y, quiet, f.omitted)
	}
}
