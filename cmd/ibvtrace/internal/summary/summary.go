// Package summary prints tables of the verbs and the objects of a trace. Its memory use depends
// on the number of existing objects, not on the length of the trace.
package summary

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

const (
	maxVerbs = 500 // further verbs are counted together
	maxLeft  = 100 // objects never destroyed that are listed; all are counted
)

// Orders are the columns by which verbs can be sorted.
var Orders = []string{"total", "calls", "errors", "mean", "max", "name"}

// A Summary is a Sink that prints its tables when it is closed.
type Summary struct {
	w       io.Writer
	order   string
	verbs   map[verbKey]*verbStats
	objects map[objectKey]*object
	types   map[string]*typeStats
	left    []leftover
	first   time.Time
	last    time.Time
}

// New returns a Summary that prints to w, with verbs sorted by one of the Orders.
func New(w io.Writer, order string) *Summary {
	return &Summary{
		w: w, order: order, verbs: make(map[verbKey]*verbStats),
		objects: make(map[objectKey]*object), types: make(map[string]*typeStats),
	}
}

// A verbKey distinguishes a library's data verb from the control verb of the same name.
type verbKey struct {
	name string
	data bool
}

type verbStats struct {
	verbKey
	calls  uint64
	errors uint64
	times  histogram
}

// Event counts an event.
func (s *Summary) Event(e *event.Event) error {
	if s.first.IsZero() || e.Time.Before(s.first) {
		s.first = e.Time
	}
	if end := e.Time.Add(e.Duration); end.After(s.last) {
		s.last = end
	}
	if e.Verb != "" && e.Kind != event.Note && e.Kind != event.Exit {
		s.count(e)
	}
	s.follow(e)
	return nil
}

func (s *Summary) count(e *event.Event) {
	k := verbKey{e.Verb, e.Kind == event.Data}
	v := s.verbs[k]
	if v == nil && len(s.verbs) >= maxVerbs {
		k = verbKey{name: "(other verbs)"}
		v = s.verbs[k]
	}
	if v == nil {
		v = &verbStats{verbKey: k}
		s.verbs[k] = v
	}
	v.calls++
	if e.Failed() && !e.Harmless() {
		v.errors++
	}
	if e.Timed {
		v.times.add(e.Duration)
	}
}

// Close prints the tables.
func (s *Summary) Close() error {
	t := table{}
	s.printVerbs(&t)
	s.printObjects(&t)
	s.printLeft(&t)
	_, err := io.WriteString(s.w, t.String())
	return err
}

// A table collects the output.
type table struct{ strings.Builder }

// rows prints lines whose columns are separated by tabs.
func (t *table) rows(lines []string) {
	w := tabwriter.NewWriter(&t.Builder, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	w.Flush()
}

func (s *Summary) printVerbs(t *table) {
	verbs := make([]*verbStats, 0, len(s.verbs))
	for _, v := range s.verbs {
		verbs = append(verbs, v)
	}
	slices.SortFunc(verbs, func(a, b *verbStats) int {
		return cmp.Or(s.compare(a, b), cmp.Compare(a.name, b.name), cmp.Compare(btoi(b.data), btoi(a.data)))
	})
	lines := []string{"calls\terrors\ttotal\tmean\tp50\tp99\tmax\t  verb"}
	var calls, errors uint64
	var total time.Duration
	for _, v := range verbs {
		calls, errors, total = calls+v.calls, errors+v.errors, total+v.times.sum
		name := text.Clean(v.name)
		if !v.data && s.verbs[verbKey{v.name, true}] != nil {
			name += " in the kernel"
		}
		lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t  %s", v.calls, some(v.errors), v.times.columns(), name))
	}
	lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t\t\t\t\t  in %s", calls, some(errors), text.Duration(total), text.Duration(s.last.Sub(s.first))))
	t.rows(lines)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// columns returns total, mean, p50, p99 and max, which are empty if no duration is known.
func (h *histogram) columns() string {
	if h.n == 0 {
		return "\t\t\t\t"
	}
	var c []string
	for _, d := range []time.Duration{h.sum, h.mean(), h.quantile(.5), h.quantile(.99), h.max} {
		c = append(c, text.Duration(d))
	}
	return strings.Join(c, "\t")
}

// some formats a number, 0 as nothing.
func some(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// compare orders verbs by the column, the greatest first.
func (s *Summary) compare(a, b *verbStats) int {
	switch s.order {
	case "calls":
		return cmp.Compare(b.calls, a.calls)
	case "errors":
		return cmp.Compare(b.errors, a.errors)
	case "mean":
		return cmp.Compare(b.times.mean(), a.times.mean())
	case "max":
		return cmp.Compare(b.times.max, a.times.max)
	case "name":
		return 0
	}
	return cmp.Compare(b.times.sum, a.times.sum)
}
