// Package plot draws charts and heat maps as SVG and HTML.
package plot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Page is a picture: panels below each other.
type Page struct {
	Title  string
	Lines  []string // below the title
	Panels []Panel
}

// A Panel is a Chart or a Heat map.
type Panel interface {
	// size returns the panel's size. It may be less wide than the page.
	size() (width, height float64)
	draw(c *canvas, y float64)
}

const (
	pageWidth  = 860
	margin     = 24
	lineHeight = 18
)

// The colours of series, in their order. Red–green colour-blind readers can distinguish
// them.
var colours = []string{"#1f6fb4", "#e07b00", "#2a9d74", "#a04b9b"}

const (
	ink   = "#1c2733"
	faint = "#5b6875"
	grid  = "#e3e8ed"
)

// Check reports whether a page can be written to a file of this name.
func Check(name string) error {
	switch filepath.Ext(name) {
	case ".svg", ".html":
		return nil
	}
	return fmt.Errorf("%q ends neither with .svg nor with .html", name)
}

// WriteFile writes the page as SVG or HTML, by the ending of the name.
func (p *Page) WriteFile(name string) error {
	if err := Check(name); err != nil {
		return err
	}
	b := p.SVG()
	if filepath.Ext(name) == ".html" {
		b = p.html(b)
	}
	return os.WriteFile(name, b, 0o644)
}

// SVG returns the page as SVG.
func (p *Page) SVG() []byte {
	width, height := float64(pageWidth), float64(margin+26+lineHeight*len(p.Lines)+12)
	for _, panel := range p.Panels {
		w, h := panel.size()
		width = max(width, w)
		height += h + 12
	}
	c := new(canvas)
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" `+
		`font-family="system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif" font-size="12">`+"\n", width, height, width, height)
	c.printf("<title>%s</title>\n", escape(p.Title))
	c.printf(`<rect width="100%%" height="100%%" fill="white"/>` + "\n")
	y := float64(margin + 14)
	c.text(margin, y, p.Title, `font-size="18" font-weight="600"`)
	for _, line := range p.Lines {
		y += lineHeight
		c.text(margin, y, line, `fill="`+faint+`"`)
	}
	y += 24
	for _, panel := range p.Panels {
		panel.draw(c, y)
		_, h := panel.size()
		y += h + 12
	}
	c.printf("</svg>\n")
	return c.Bytes()
}

func (p *Page) html(svg []byte) []byte {
	return fmt.Appendf(nil, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>%s</title>\n"+
		"<style>body { margin: 0; background: #eef1f4 } svg { display: block; margin: 1em auto; max-width: 100%%; height: auto }</style>\n%s</html>\n",
		escape(p.Title), svg)
}

// escape escapes a text for XML and HTML.
func escape(s string) string {
	for _, c := range [][2]string{{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {`"`, "&#34;"}} {
		s = strings.ReplaceAll(s, c[0], c[1])
	}
	return s
}

// A canvas collects the elements of a picture.
type canvas struct{ bytes.Buffer }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

func (c *canvas) text(x, y float64, s, attributes string) {
	if !strings.Contains(attributes, "fill=") {
		attributes += ` fill="` + ink + `"`
	}
	c.printf(`<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, escape(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, colour string) {
	c.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
}
