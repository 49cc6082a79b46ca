package figure

import "io"

const page = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>
body { margin: 0; background: #fff; color: #12263f; font-family: ` + sans + `; }
main { padding: 0 28px 48px; }
svg { display: block; max-width: 100%%; height: auto; }
svg a:hover rect, svg a:focus rect { stroke: #e07b00; stroke-width: 2; }
h2 { font-size: 16px; margin: 32px 0 8px; }
ol { list-style: none; margin: 0; padding: 0; font: 12.5px/1.5 ` + mono + `; }
li { padding: 2px 8px; border-left: 4px solid transparent; overflow-wrap: anywhere; }
li:target { background: #fff4d6; border-color: #e07b00; }
li b { color: #5b6570; font-weight: 400; }
li.failed { border-color: #c62828; }
</style>
</head>
<body>
`

// HTML writes a self-contained page with the figure, and below it the line of the first verb of
// each box. Each box links to its line.
func (f *Figure) HTML(w io.Writer) error {
	var c canvas
	svg := canvas{links: true}
	p := f.draw(&svg)
	title := f.Title
	if title == "" {
		title = "RDMA verbs"
	}
	c.put(page, esc(title))
	c.WriteString(svg.String())
	c.put("<main>\n")
	for _, col := range p.columns {
		c.put("<h2>%s, process %d</h2>\n<ol>\n", esc(col.comm), col.pid)
		for _, i := range col.items {
			class := ""
			if i.failed > 0 {
				class = ` class="failed"`
			}
			c.put(`<li id="%s"%s>%s`, p.id(col, i), class, esc(i.line))
			if i.count() > 1 {
				c.put(" <b>and %d more</b>", i.count()-1)
			}
			c.put("</li>\n")
		}
		c.put("</ol>\n")
	}
	c.put("</main>\n</body>\n</html>\n")
	_, err := io.WriteString(w, c.String())
	return err
}
