package selftest

import (
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// A Status is the outcome of a group, or of the whole run.
type Status string

const (
	Passed    Status = "passed"
	Shortened Status = "shortened" // all checks have passed, but time ended before the planned number was reached
	Failed    Status = "failed"
	NotThere  Status = "not there" // the device or the host doesn't have what the group tests
	Stopped   Status = "stopped"   // interrupted
)

// A Report is the outcome of a run. It has no GUIDs, addresses or host names: see hider.
type Report struct {
	Format   int      `json:"format"` // 1
	Status   Status   `json:"status"`
	Version  string   `json:"version"` // of goverbs
	Go       string   `json:"go"`
	Kernel   string   `json:"kernel"`
	Arch     string   `json:"arch"`
	CPUs     int      `json:"cpus"`
	PageSize int      `json:"page_size"`
	Memlock  string   `json:"memlock"`
	Options  []string `json:"options"`
	Seed     uint64   `json:"seed"`
	Patience string   `json:"patience"`
	Seconds  float64  `json:"seconds"`
	Devices  []string `json:"devices"`
	Between  string   `json:"between"` // "loopback" or "two devices"
	Groups   []*Group `json:"groups"`
}

// A Group is the result of one group of checks.
type Group struct {
	Name     string    `json:"name"`
	Status   Status    `json:"status"`
	Seconds  float64   `json:"seconds"`
	Passed   int       `json:"checks_passed"`
	Done     int       `json:"done"` // of Unit
	Planned  int       `json:"planned"`
	Unit     string    `json:"unit"`
	NotThere []string  `json:"not_there"`
	Failures []Failure `json:"failures"`
	Facts    []Fact    `json:"facts"`
}

// A Fact is a raw answer of the device or the kernel, or a measurement.
type Fact struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// A Failure describes an error, in terms of the tested object.
type Failure struct {
	Group    string   `json:"group"`
	Check    string   `json:"check"`
	Object   string   `json:"object"`
	Expected string   `json:"expected"`
	Seen     string   `json:"seen"`
	Also     []string `json:"also,omitempty"`   // where else the same check failed
	Right    []string `json:"right,omitempty"`  // where it passed, as far as that narrows the cause
	Details  []string `json:"detail,omitempty"` // bytes, states, later attempts
}

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: expected %s, but %s", f.Object, f.Expected, f.Seen)
	for _, d := range f.Details {
		fmt.Fprintf(&b, "\n%s", d)
	}
	if len(f.Also) > 0 {
		fmt.Fprintf(&b, "\nalso %s", few(f.Also))
	}
	if len(f.Right) > 0 {
		fmt.Fprintf(&b, "\nright %s", few(f.Right))
	}
	return b.String()
}

// few joins the first items of a list.
func few(list []string) string {
	const most = 12
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// fact adds a fact.
func (g *Group) fact(name string, value any) { g.Facts = append(g.Facts, Fact{name, value}) }

// conclude sets the group's status after its checks.
func (g *Group) conclude(stopped bool) {
	switch {
	case len(g.Failures) > 0:
		g.Status = Failed
	case stopped:
		g.Status = Stopped
	case g.Passed == 0:
		g.Status = NotThere
	case g.Done < g.Planned:
		g.Status = Shortened
	default:
		g.Status = Passed
	}
}

// conclude sets the report's status.
func (r *Report) conclude() {
	r.Status = NotThere
	worst := map[Status]int{NotThere: 0, Passed: 1, Shortened: 2, Stopped: 3, Failed: 4}
	for _, g := range r.Groups {
		if worst[g.Status] > worst[r.Status] {
			r.Status = g.Status
		}
	}
}

// Text writes the report as text: a table, and then each failure.
func (r *Report) Text(w io.Writer) {
	c := cli.PaletteOf(w)
	fmt.Fprintf(w, "goverbs %s on %s, Linux %s, %s\n\n", r.Version, c.Name(strings.Join(r.Devices, " and ")), r.Kernel, r.Between)
	fmt.Fprintf(w, "%-12s %-10s %8s  %s\n", "group", "status", "seconds", "what")
	for _, g := range r.Groups {
		fmt.Fprintf(w, "%-12s %s %8.1f  %s\n", g.Name, g.Status.paint(c, 10), g.Seconds, g.what())
	}
	for _, g := range r.Groups {
		if len(g.NotThere) > 0 {
			fmt.Fprintf(w, "\nnot there, %s: %s\n", g.Name, strings.Join(g.NotThere, "; "))
		}
	}
	for _, g := range r.Groups {
		for i := range g.Failures {
			f := &g.Failures[i]
			fmt.Fprintf(w, "\n%s %s: %s\n  %s\n", c.Bad("FAILED"), f.Group, f.Check, strings.ReplaceAll(f.Error(), "\n", "\n  "))
		}
	}
	fmt.Fprintf(w, "\n%s in %.0f seconds\n", r.Status.paint(c, 0), r.Seconds)
}

// paint returns the status in its colour, in a column of this width.
func (s Status) paint(c cli.Palette, width int) string {
	text := fmt.Sprintf("%-*s", width, s)
	switch s {
	case Passed:
		return c.Good(text)
	case Failed:
		return c.Bad(text)
	case NotThere:
		return c.Dim(text)
	}
	return c.Note(text)
}

func (g *Group) what() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d checks", g.Passed)
	if n := len(g.Failures); n > 0 {
		fmt.Fprintf(&b, ", %d failed", n)
	}
	switch {
	case g.Planned > g.Done:
		fmt.Fprintf(&b, ", %d of %d %s", g.Done, g.Planned, g.Unit)
	case g.Done > 0:
		fmt.Fprintf(&b, ", %d %s", g.Done, g.Unit)
	}
	if n := len(g.NotThere); n > 0 {
		fmt.Fprintf(&b, ", %d not there", n)
	}
	return b.String()
}
