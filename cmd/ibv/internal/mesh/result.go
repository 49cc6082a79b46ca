package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// A Result is the object that --json prints and --compare reads.
type Result struct {
	Time  time.Time `json:"time"`
	Bytes int       `json:"bytes"` // of a write
	Hosts []Host    `json:"hosts"` // by rank
	Links []Link    `json:"links"`
	Slow  Slow      `json:"slow"`
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
	name string
	unit string
	more bool // more is better
	of   func(l *Link) float64
}

var metrics = []metric{
	{"latency", "µs", false, func(l *Link) float64 { return l.Latency.Median }},
	{"bandwidth", "Gb/s", true, func(l *Link) float64 { return l.AB }},
	{"bandwidth back", "Gb/s", true, func(l *Link) float64 { return l.BA }},
	{"bandwidth both ways", "Gb/s", true, func(l *Link) float64 { return l.Both }},
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
					why[l] = append(why[l], fmt.Sprintf("%s %.4g %s (usual: %.4g)", m.name, v, m.unit, usual))
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
	sorted := slices.Clone(values)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
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
	case lost > 0:
		return fmt.Errorf("%d of %d ranks are lost", lost, len(r.Hosts))
	case failed > 0:
		return fmt.Errorf("%d of %d links could not be measured", failed, len(r.Links))
	}
	return nil
}

// Print prints the result as text.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "%d ranks, %d links, writes of %s\n", len(r.Hosts), len(r.Links), plot.Bytes(float64(r.Bytes)))
	for rail := range r.rails() {
		if r.rails() > 1 {
			fmt.Fprintf(w, "rail %d:\n", rail)
		}
		for _, m := range metrics {
			if values := r.values(rail, m); len(values) > 0 {
				fmt.Fprintf(w, "  %-20s  median %.4g, from %.4g to %.4g %s\n", m.name, median(values), slices.Min(values), slices.Max(values), m.unit)
			}
		}
	}
	for _, h := range r.Hosts {
		if h.Lost != "" {
			fmt.Fprintf(w, "lost: rank %d on %s %s\n", h.Rank, h.Name, h.Lost)
		}
	}
	for _, who := range r.Away {
		fmt.Fprintf(w, "turned away: %s\n", who)
	}
	for i := range r.Links {
		if l := &r.Links[i]; l.Error != "" && r.Hosts[l.A].Lost == "" && r.Hosts[l.B].Lost == "" {
			fmt.Fprintf(w, "failed: %s: %s\n", r.label(l), l.Error)
		}
	}
	for _, h := range r.Slow.Hosts {
		fmt.Fprintf(w, "slow host: %s\n", h)
	}
	for _, l := range r.Slow.Links {
		fmt.Fprintf(w, "slow link: %s\n", l)
	}
	if r.Bad() == nil && len(r.Slow.Hosts)+len(r.Slow.Links) == 0 {
		fmt.Fprintln(w, "No link is much slower than the others.")
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
			text := fmt.Sprintf("%s: %s %.4g to %.4g %s (%+.0f %%)", r.label(l), m.name, was, is, m.unit, 100*change)
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
	return append([]string{fmt.Sprintf("compared with %s: %d of %d links were there", before.Time.Format("2 Jan 2006 15:04"), compared, len(r.Links))}, lines...)
}

// Draw draws heat maps.
func (r *Result) Draw() *plot.Page {
	page := &plot.Page{Title: "ibv mesh", Lines: []string{fmt.Sprintf("%d ranks, writes of %s, %s",
		len(r.Hosts), plot.Bytes(float64(r.Bytes)), r.Time.Format("2 Jan 2006 15:04"))}}
	for _, h := range r.Hosts {
		if h.Lost != "" {
			page.Lines = append(page.Lines, fmt.Sprintf("lost: rank %d on %s", h.Rank, h.Name))
		}
	}
	for _, h := range r.Slow.Hosts {
		page.Lines = append(page.Lines, "slow host: "+h)
	}
	for _, l := range r.Slow.Links {
		page.Lines = append(page.Lines, "slow link: "+l)
	}
	var names []string
	for _, h := range r.Hosts {
		names = append(names, h.Name)
	}
	for rail := range r.rails() {
		suffix := ""
		if r.rails() > 1 {
			suffix = fmt.Sprintf(", rail %d", rail)
		}
		latency := plot.Heat{Title: "Latency one way" + suffix, Names: names, Unit: "µs", ColLabel: "to rank"}
		one := plot.Heat{Title: "Bandwidth one way" + suffix, Names: names, Unit: "Gb/s", More: true, RowLabel: "from", ColLabel: "to rank"}
		two := plot.Heat{Title: "Bandwidth both ways" + suffix, Names: names, Unit: "Gb/s", More: true, ColLabel: "with rank"}
		for _, h := range []*plot.Heat{&latency, &one, &two} {
			for range names {
				row := make([]float64, len(names))
				for j := range row {
					row[j] = math.NaN()
				}
				h.Values = append(h.Values, row)
			}
		}
		for i := range r.Links {
			l := &r.Links[i]
			if l.Rail != rail || !l.measured() {
				continue
			}
			latency.Values[l.A][l.B], latency.Values[l.B][l.A] = l.Latency.Median, l.Latency.Median
			one.Values[l.A][l.B], one.Values[l.B][l.A] = l.AB, l.BA
			two.Values[l.A][l.B], two.Values[l.B][l.A] = l.Both, l.Both
		}
		page.Panels = append(page.Panels, latency, one, two)
	}
	return page
}
