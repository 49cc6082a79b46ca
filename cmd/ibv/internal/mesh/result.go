package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// A Result is the object that --json prints and --compare reads.
type Result struct {
	Time  time.Time `json:"time"`
	Bytes int       `json:"bytes"` // of a write
	Hosts []Host    `json:"hosts"` // by rank
	Links []Link    `json:"links"`
	Slow  Slow      `json:"slow"`
	Left  int       `json:"rounds_left,omitempty"` // that an interrupt has prevented
	Away  []string  `json:"turned_away,omitempty"` // processes that connected and aren't ranks of this mesh
}

// A Host is a rank.
type Host struct {
	Rank  int    `json:"rank"`
	Name  string `json:"host"` // with the rank if a host has several
	Rails []Rail `json:"rails"`
	Lost  string `json:"lost,omitempty"` // why it is lost
}

// A Link is one rail between two ranks. Bandwidths are in Gb/s.
type Link struct {
	A       int      `json:"a"`
	B       int      `json:"b"`
	Rail    int      `json:"rail"`
	Latency *Latency `json:"latency_us,omitempty"`
	AB      float64  `json:"gbits_ab"` // from a to b
	BA      float64  `json:"gbits_ba"`
	Both    float64  `json:"gbits_both"` // in both directions at the same time
	Error   string   `json:"error,omitempty"`
}

// Slow lists hosts and links that are much slower than the rest.
type Slow struct {
	Hosts []string `json:"hosts"`
	Links []string `json:"links"` // links between other hosts, with the slow metrics
}

// name makes the hosts' names unique, and judges.
func (r *Result) name() {
	count := make(map[string]int)
	for _, h := range r.Hosts {
		count[h.Name]++
	}
	for i, h := range r.Hosts {
		if count[h.Name] > 1 {
			r.Hosts[i].Name = fmt.Sprintf("%s:%d", h.Name, h.Rank)
		}
	}
	r.Slow = r.judge()
}

// A metric is one number of a link.
type metric struct {
	name  string
	unit  string
	scale float64 // of a value, to be in the unit
	more  bool    // more is better
	of    func(l *Link) float64
}

func (m metric) show(value float64) string { return cli.SI(value*m.scale, m.unit) }

var metrics = []metric{
	{"latency", "s", 1e-6, false, func(l *Link) float64 { return l.Latency.Median }},
	{"bandwidth", "b/s", 1e9, true, func(l *Link) float64 { return l.AB }},
	{"bandwidth back", "b/s", 1e9, true, func(l *Link) float64 { return l.BA }},
	{"bandwidth both ways", "b/s", 1e9, true, func(l *Link) float64 { return l.Both }},
}

func (l *Link) measured() bool { return l.Error == "" && l.Latency != nil }

// rails returns the number of rails.
func (r *Result) rails() (n int) {
	for _, l := range r.Links {
		n = max(n, l.Rail+1)
	}
	return n
}

// Limits of slow links, relative to the median: factors of the latency and the bandwidth, and the least difference.
const (
	muchMore   = 1.5
	leastMore  = 1.0 // µs
	muchLess   = 0.8
	fewestSeen = 3 // links needed for a median
)

func (r *Result) label(l *Link) string {
	text := r.Hosts[l.A].Name + " – " + r.Hosts[l.B].Name
	if r.rails() > 1 {
		text += fmt.Sprintf(", rail %d", l.Rail)
	}
	return text
}

// judge finds slow hosts and links. A host is slow if more than two thirds of its links are slow.
func (r *Result) judge() Slow {
	s := Slow{Hosts: []string{}, Links: []string{}}
	why := make(map[*Link][]string)
	for rail := range r.rails() {
		for _, m := range metrics {
			values := r.values(rail, m)
			if len(values) < fewestSeen {
				continue
			}
			usual := median(values)
			for i := range r.Links {
				l := &r.Links[i]
				if l.Rail != rail || !l.measured() {
					continue
				}
				v := m.of(l)
				if m.more && v < muchLess*usual || !m.more && v > muchMore*usual && v > usual+leastMore {
					why[l] = append(why[l], fmt.Sprintf("%s %s (usual: %s)", m.name, m.show(v), m.show(usual)))
				}
			}
		}
	}
	slow, all := make([]int, len(r.Hosts)), make([]int, len(r.Hosts))
	for i := range r.Links {
		if l := &r.Links[i]; l.measured() {
			for _, host := range []int{l.A, l.B} {
				if all[host]++; why[l] != nil {
					slow[host]++
				}
			}
		}
	}
	bad := make(map[int]bool)
	for i, h := range r.Hosts {
		if all[i] >= fewestSeen && 3*slow[i] > 2*all[i] {
			bad[i] = true
			s.Hosts = append(s.Hosts, h.Name)
		}
	}
	if 2*len(bad) >= len(r.Hosts) {
		clear(bad) // half of the hosts or more would be slow: then none is
		s.Hosts = []string{}
	}
	for i := range r.Links {
		if l := &r.Links[i]; why[l] != nil && !bad[l.A] && !bad[l.B] {
			s.Links = append(s.Links, r.label(l)+": "+strings.Join(why[l], ", "))
		}
	}
	return s
}

// values returns a metric of all links of a rail.
func (r *Result) values(rail int, m metric) (all []float64) {
	for i := range r.Links {
		if l := &r.Links[i]; l.Rail == rail && l.measured() {
			all = append(all, m.of(l))
		}
	}
	return all
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[n/2] + sorted[(n-1)/2]) / 2
}

// Bad returns an error if a rank is lost, or a link could not be measured.
func (r *Result) Bad() error {
	lost, failed := 0, 0
	for _, h := range r.Hosts {
		if h.Lost != "" {
			lost++
		}
	}
	for _, l := range r.Links {
		if l.Error != "" && r.Hosts[l.A].Lost == "" && r.Hosts[l.B].Lost == "" {
			failed++
		}
	}
	switch {
	case r.Left > 0:
		return fmt.Errorf("interrupted: %d rounds are left", r.Left)
	case lost > 0:
		return fmt.Errorf("%d of %d ranks are lost", lost, len(r.Hosts))
	case failed > 0:
		return fmt.Errorf("%d of %d links could not be measured", failed, len(r.Links))
	}
	return nil
}

// mostMapped is how many ranks have maps in the text.
const mostMapped = 32

// Print prints the result as text.
func (r *Result) Print(w io.Writer) {
	c := cli.PaletteOf(w)
	fmt.Fprintf(w, "%d ranks, %d links, writes of %s\n", len(r.Hosts), len(r.Links), plot.Bytes(float64(r.Bytes)))
	for rail := range r.rails() {
		if r.rails() > 1 {
			fmt.Fprintf(w, "rail %d:\n", rail)
		}
		for _, m := range metrics {
			if values := r.values(rail, m); len(values) > 0 {
				fmt.Fprintf(w, "  %-20s  median %s, from %s to %s\n", m.name, m.show(median(values)), m.show(slices.Min(values)), m.show(slices.Max(values)))
			}
		}
	}
	if n := len(r.Hosts); n > 2 && n <= mostMapped {
		for _, h := range r.maps() {
			fmt.Fprintln(w)
			fmt.Fprint(w, h.Text(c))
		}
		fmt.Fprintln(w)
	}
	for _, h := range r.Hosts {
		if h.Lost != "" {
			fmt.Fprintf(w, "%s rank %d on %s %s\n", c.Bad("lost:"), h.Rank, c.Name(h.Name), h.Lost)
		}
	}
	for _, who := range r.Away {
		fmt.Fprintf(w, "%s %s\n", c.Note("turned away:"), who)
	}
	for i := range r.Links {
		if l := &r.Links[i]; l.Error != "" && r.Hosts[l.A].Lost == "" && r.Hosts[l.B].Lost == "" {
			fmt.Fprintf(w, "%s %s: %s\n", c.Bad("failed:"), r.label(l), l.Error)
		}
	}
	for _, h := range r.Slow.Hosts {
		fmt.Fprintf(w, "%s %s\n", c.Bad("slow host:"), c.Name(h))
	}
	for _, l := range r.Slow.Links {
		fmt.Fprintf(w, "%s %s\n", c.Bad("slow link:"), l)
	}
	if r.Bad() == nil && len(r.Slow.Hosts)+len(r.Slow.Links) == 0 {
		fmt.Fprintln(w, c.Good("No link is much slower than the others."))
	}
}

// ReadResult reads a file that --json has written.
func ReadResult(name string) (*Result, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(r.Hosts) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errors.New("there is no mesh in it"))
	}
	for _, l := range r.Links {
		if min(l.A, l.B, l.Rail) < 0 || max(l.A, l.B) >= len(r.Hosts) {
			return nil, fmt.Errorf("%s: a link joins ranks %d and %d of %d", name, l.A, l.B, len(r.Hosts))
		}
	}
	return r, nil
}

// changed is the smallest relative difference that Compare reports.
const changed = 0.1

// Compare lists what has become worse or better since an earlier run, by the hosts' names.
func (r *Result) Compare(before *Result) (lines []string) {
	type key struct {
		a, b string
		rail int
	}
	old := make(map[key]*Link)
	for i := range before.Links {
		if l := &before.Links[i]; l.measured() {
			a, b := before.Hosts[l.A].Name, before.Hosts[l.B].Name
			old[key{a, b, l.Rail}] = l
			old[key{b, a, l.Rail}] = &Link{A: l.B, B: l.A, Rail: l.Rail, Latency: l.Latency, AB: l.BA, BA: l.AB, Both: l.Both}
		}
	}
	compared := 0
	var better []string
	for i := range r.Links {
		l := &r.Links[i]
		then := old[key{r.Hosts[l.A].Name, r.Hosts[l.B].Name, l.Rail}]
		if then == nil || !l.measured() {
			continue
		}
		compared++
		for _, m := range metrics {
			was, is := m.of(then), m.of(l)
			change := is/was - 1
			if math.IsNaN(change) || math.Abs(change) < changed {
				continue
			}
			text := fmt.Sprintf("%s: %s %s to %s (%+.0f %%)", r.label(l), m.name, m.show(was), m.show(is), 100*change)
			if m.more == (change > 0) {
				better = append(better, "better: "+text)
			} else {
				lines = append(lines, "worse: "+text)
			}
		}
	}
	if lines = append(lines, better...); len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("Nothing differs by %.0f %% or more.", 100*changed))
	}
	return append([]string{fmt.Sprintf("compared with %s: %d of %d links were there", before.Time.Format(stamp), compared, len(r.Links))}, lines...)
}

// stamp is how times are written.
const stamp = "2 Jan 2006 15:04 MST"

// mostNamed is how many slow links a picture names.
const mostNamed = 12

// Draw draws heat maps.
func (r *Result) Draw() *plot.Page {
	page := &plot.Page{Title: "ibv mesh", Lines: []string{fmt.Sprintf("%d ranks, writes of %s, %s",
		len(r.Hosts), plot.Bytes(float64(r.Bytes)), r.Time.Format(stamp))}}
	for _, h := range r.Hosts {
		if h.Lost != "" {
			page.Lines = append(page.Lines, fmt.Sprintf("lost: rank %d on %s", h.Rank, h.Name))
		}
	}
	for _, h := range r.Slow.Hosts {
		page.Lines = append(page.Lines, "slow host: "+h)
	}
	for i, l := range r.Slow.Links {
		if i == mostNamed {
			page.Lines = append(page.Lines, fmt.Sprintf("and %d more slow links", len(r.Slow.Links)-i))
			break
		}
		page.Lines = append(page.Lines, "slow link: "+l)
	}
	for _, h := range r.maps() {
		page.Panels = append(page.Panels, h)
	}
	return page
}

// maps returns the maps of each rail.
func (r *Result) maps() (all []*plot.Heat) {
	var names []string
	for _, h := range r.Hosts {
		names = append(names, h.Name)
	}
	for rail := range r.rails() {
		for _, m := range []struct {
			metric
			title, row, column string
			back               func(l *Link) float64
		}{
			{metrics[0], "Latency one way", "between", "and", metrics[0].of},
			{metrics[1], "Bandwidth one way", "from", "to", metrics[2].of},
			{metrics[3], "Bandwidth both ways", "between", "and", metrics[3].of},
		} {
			if r.rails() > 1 {
				m.title += fmt.Sprintf(", rail %d", rail)
			}
			h := &plot.Heat{Title: m.title, Names: names, RowLabel: m.row, ColLabel: m.column, More: m.more, Show: m.show}
			for range names {
				row := make([]float64, len(names))
				for j := range row {
					row[j] = math.NaN()
				}
				h.Values = append(h.Values, row)
			}
			for i := range r.Links {
				if l := &r.Links[i]; l.Rail == rail && l.measured() {
					h.Values[l.A][l.B], h.Values[l.B][l.A] = m.of(l), m.back(l)
				}
			}
			all = append(all, h)
		}
	}
	return all
}
