package xfer

import (
	"fmt"
	"io"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// print prints the result as a table.
func (r *Result) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %s to %s\n", r.Op, r.Host, r.Server)
	for i := range r.Rows {
		row := &r.Rows[i]
		if i == 0 || row.Rails != r.Rows[i-1].Rails {
			fmt.Fprintf(w, "over %s\n%9s %9s %14s %9s %11s %11s", row.Rails, "bytes", "at a time", "operations/s", "Gb/s", "median µs", "99 % µs")
			if len(row.Shares) > 1 {
				fmt.Fprint(w, "  Gb/s of each rail")
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, row)
	}
}

// draw draws the bandwidth and the latency of each combination of rails and operations at a time over
// the sizes.
func (r *Result) draw() *plot.Page {
	sizes := plot.Axis{Label: "size of an operation", Log: true}
	for _, row := range r.Rows {
		if tick := (plot.Tick{At: float64(row.Bytes), Name: plot.Bytes(float64(row.Bytes))}); !slices.Contains(sizes.Ticks, tick) {
			sizes.Ticks = append(sizes.Ticks, tick)
		}
	}
	bandwidth := plot.Chart{Title: "Bandwidth", X: sizes, Y: plot.Axis{Label: "Gb/s"}}
	latency := plot.Chart{Title: "Latency: median, and to the 99th percentile", X: sizes, Y: plot.Axis{Label: "latency in µs", Log: true}}
	at := make(map[string]int)
	for _, row := range r.Rows {
		name := fmt.Sprintf("%s, %d at a time", row.Rails, row.At)
		i, known := at[name]
		if !known {
			i = len(bandwidth.Series)
			at[name] = i
			s := plot.Series{Name: name, Colour: i, Marks: true}
			bandwidth.Series, latency.Series = append(bandwidth.Series, s), append(latency.Series, s)
		}
		x := float64(row.Bytes)
		b, l := &bandwidth.Series[i], &latency.Series[i]
		b.Points = append(b.Points, plot.Point{X: x, Y: row.Gbits})
		l.Points = append(l.Points, plot.Point{X: x, Y: row.Latency.Median})
		l.Band = append(l.Band, plot.Range{X: x, Low: row.Latency.Median, High: row.Latency.P99})
	}
	return &plot.Page{
		Title:  "ibv xfer bench",
		Lines:  []string{fmt.Sprintf("%s, %s to %s, %s", r.Op, r.Host, r.Server, r.Time.Format("2 Jan 2006 15:04"))},
		Panels: []plot.Panel{bandwidth, latency},
	}
}
