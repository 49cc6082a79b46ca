// Package plot draws charts and heat maps as SVG and HTML.
package plot

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// A Page is a picture: panels below each other.
type Page struct {
	Title  string
	Lines  []string // below the title; long ones are wrapped
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
	fontSize   = 12
)

// style has the colours, by class, on light and on dark pages. Those of series are c0 to c3: red–green
// colour-blind readers can distinguish them.
const style = `<style>
text{fill:#1c2733}.faint{fill:#5b6875}.paper{fill:#fff}.none{fill:#f0f2f4}.grid{stroke:#e3e8ed}.axis{stroke:#5b6875}
.c0{color:#1f6fb4}.c1{color:#d07200}.c2{color:#2a9d74}.c3{color:#a04b9b}
.onlight{fill:#1c2733}.ondark{fill:#fff}.hit{opacity:0}.hit:hover{opacity:1}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.faint{fill:#9aa7b4}.paper{fill:#0d1117}.none{fill:#1c2430}.grid{stroke:#2a333d}.axis{stroke:#9aa7b4}
.c0{color:#58a6ff}.c1{color:#f0a13c}.c2{color:#4ecb9c}.c3{color:#d58ad0}
.onlight{fill:#1c2733}.ondark{fill:#fff}}
</style>
`

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
		b = fmt.Appendf(nil, page, html.EscapeString(p.Title), b)
	}
	return os.WriteFile(name, b, 0o644)
}

// SVG returns the page as SVG.
func (p *Page) SVG() []byte {
	width, height := float64(pageWidth), 0.0
	for _, panel := range p.Panels {
		w, h := panel.size()
		width = max(width, w)
		height += h + 12
	}
	var lines []string
	for _, line := range p.Lines {
		lines = append(lines, wrap(line, width-2*margin)...)
	}
	height += float64(margin + 26 + lineHeight*len(lines) + 12)
	c := new(canvas)
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" `+
		`font-family="system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif" font-size="%d">`+"\n", width, height, width, height, fontSize)
	c.printf("<title>%s</title>\n%s", html.EscapeString(p.Title), style)
	c.printf(`<rect width="100%%" height="100%%" class="paper"/>` + "\n")
	y := float64(margin + 14)
	c.text(margin, y, p.Title, `font-size="18" font-weight="600"`)
	for _, line := range lines {
		y += lineHeight
		c.text(margin, y, line, `class="faint"`)
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

// page is an HTML page with a picture. What the pointer is on tells its value.
const page = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>
body { margin: 0; background: #eef1f4 }
svg { display: block; margin: 1em auto; max-width: 100%%; height: auto }
#tip { position: absolute; padding: .3em .6em; border-radius: .3em; background: #1c2733; color: #fff; font: 13px system-ui, sans-serif; white-space: nowrap; pointer-events: none }
@media (prefers-color-scheme: dark) { body { background: #010409 } #tip { background: #e6edf3; color: #1c2733 } }
</style>
%s<div id="tip" hidden></div>
<script>
const tip = document.getElementById("tip")
addEventListener("mousemove", e => {
  const title = e.target.tagName != "svg" && e.target.querySelector(":scope > title")
  tip.hidden = !title
  if (title) tip.textContent = title.textContent
  tip.style.top = e.pageY + 14 + "px"
  tip.style.left = Math.min(e.pageX + 14, innerWidth - tip.offsetWidth - 8) + "px"
})
</script>
</html>
`

// widthOf returns about how wide a text is, and no less, in the fonts of the pages.
func widthOf(text string, size float64) (width float64) {
	for _, r := range text {
		switch {
		case strings.ContainsRune("ijlftI.,:;'|! ()[]-/", r):
			width += 0.4
		case r >= 0x1100 || strings.ContainsRune("mwMW@%…", r):
			width++
		case unicode.IsUpper(r):
			width += 0.78
		default:
			width += 0.65
		}
	}
	return width * size
}

// wrap breaks a text into lines of a width. It cuts words that are longer.
func wrap(text string, width float64) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && widthOf(line+" "+word, fontSize) > width {
			lines, line = append(lines, line), ""
		}
		line = shorten(strings.TrimSpace(line+" "+word), width, fontSize)
	}
	return append(lines, line)
}

// shorten cuts the end of a text that is wider than it may be.
func shorten(text string, width, size float64) string {
	if widthOf(text, size) <= width {
		return text
	}
	r := []rune(text)
	for len(r) > 0 && widthOf(string(r)+"…", size) > width {
		r = r[:len(r)-1]
	}
	return string(r) + "…"
}

// A canvas collects the elements of a picture.
type canvas struct{ bytes.Buffer }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

func (c *canvas) text(x, y float64, s, attributes string) {
	c.printf(`<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, attributes string) {
	c.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, attributes)
}
