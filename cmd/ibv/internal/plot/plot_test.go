package plot

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// heat returns a map of ranks with long names.
func heat(n int) Heat {
	h := Heat{Title: "Latency one way, rail 3", RowLabel: "between", ColLabel: "and", Show: func(v float64) string { return cli.SI(v/1e6, "s") }}
	for i := range n {
		row := make([]float64, n)
		for j := range row {
			row[j] = 123456 + float64(i*j)
		}
		row[n-1] = math.NaN()
		h.Names = append(h.Names, fmt.Sprintf("gpu-node-with-a-long-name-%d.cluster.example", i))
		h.Values = append(h.Values, row)
	}
	return h
}

// TestInside: no text leaves the page, nor meets another one on its line, however many there are and however
// long.
func TestInside(t *testing.T) {
	long := strings.Repeat("slow link: gpu-node-1.example – gpu-node-2.example ", 4) + strings.Repeat("x", 300)
	chart := Chart{Title: "Over sizes", X: Axis{Label: "size", Log: true, Name: Bytes}, Y: Axis{Label: "latency", Log: true}}
	for i := range 5 {
		chart.Series = append(chart.Series, Series{Name: strings.Repeat("typical, and to the 99th percentile ", i%3), Colour: i, Points: []Point{{2, 1.7}, {4096, 1700}}})
	}
	graph := Graph{Links: []Join{{0, 1, "1 – 2, 4X 25.0 Gbps", true}, {0, 5, "3 – 1, 4X 25.0 Gbps", false}}}
	for i := range 9 {
		graph.Boxes = append(graph.Boxes, Box{strings.Repeat("a node ", i), "LID 17, 0002c90300001234", i > 3})
	}
	for _, panel := range []Panel{heat(2), heat(8), heat(16), heat(32), heat(200), chart, graph} {
		svg := (&Page{Title: "ibv mesh", Lines: []string{long}, Panels: []Panel{panel}}).SVG()
		width, rows := 0.0, make(map[string][][2]float64)
		d := xml.NewDecoder(strings.NewReader(string(svg)))
		for token, err := d.Token(); err == nil; token, err = d.Token() {
			start, is := token.(xml.StartElement)
			if !is {
				continue
			}
			attr := map[string]string{"font-size": fmt.Sprint(fontSize)}
			for _, a := range start.Attr {
				attr[a.Name.Local] = a.Value
			}
			number := func(name string) float64 {
				v, err := strconv.ParseFloat(attr[name], 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			switch start.Name.Local {
			case "svg":
				width = number("width")
			case "text":
				var text string
				if err := d.DecodeElement(&text, &start); err != nil {
					t.Fatal(err)
				}
				from, w := number("x"), widthOf(text, number("font-size"))
				switch attr["text-anchor"] {
				case "end":
					from -= w
				case "middle":
					from -= w / 2
				}
				if from < 0 || from+w > width {
					t.Errorf("%T: %q is from %.0f to %.0f of %.0f", panel, text, from, from+w, width)
				}
				for _, other := range rows[attr["y"]] {
					if from < other[1] && other[0] < from+w {
						t.Errorf("%T: %q meets another text", panel, text)
					}
				}
				rows[attr["y"]] = append(rows[attr["y"]], [2]float64{from, from + w})
			}
		}
	}
}

// TestTicks: there are as many as there is room for, and a logarithmic axis names its base.
func TestTicks(t *testing.T) {
	for _, test := range []struct {
		log       bool
		low, high float64
		length    float64
		want      string
	}{
		{true, 1.7, 23, 170, "1.7 3 5 10 20"},
		{true, 2.07, 23, 740, "2.07 3 5 7 10 15 20"},
		{true, 1, 1e6, 200, "1 10 100 1 k 10 k 100 k 1 M"},
		{true, 2.01, 2.09, 100, "2.02 2.04 2.06 2.08"},
		{false, 0, 100, 160, "0 20 40 60 80 100"},
		{false, 0, 0.037, 160, "0 0.005 0.01 0.015 0.02 0.025 0.03 0.035"},
	} {
		var names []string
		for _, tick := range newScale(Axis{Log: test.log}, []float64{test.low, test.high}, 0, test.length).ticks(20) {
			names = append(names, tick.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("from %g to %g: %s, want %s", test.low, test.high, got, test.want)
		}
	}
}

// TestText: the map of a terminal shows good values by high blocks, or by colours.
func TestText(t *testing.T) {
	h := Heat{Title: "Bandwidth", RowLabel: "from", ColLabel: "to", More: true, Names: []string{"a", "b", "c"},
		Values: [][]float64{{0, 100, 50}, {100, 0, math.NaN()}, {75, 100, 0}}, Show: func(v float64) string { return cli.SI(v, "b/s") }}
	want := `Bandwidth, from row to column: 50 b/s ▁▁▂▂▄▄▆▆██ 100 b/s
                          0      
                   a   0   ██▁▁
                   b   1 ██  ??
                   c   2 ▄▄██  
`
	h.Values[0][0], h.Values[1][1], h.Values[2][2] = math.NaN(), math.NaN(), math.NaN()
	if got := h.Text(false); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := h.Text(true); !strings.Contains(got, "\x1b[38;5;32m██\x1b[m\x1b[38;5;160m██\x1b[m\n") {
		t.Errorf("%q", got)
	}
}
