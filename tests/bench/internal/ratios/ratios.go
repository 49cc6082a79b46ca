// Package ratios compares counts of instructions, in C and in Go, with the ratios stored in a
// file.
package ratios

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// margin is the permitted growth of a ratio.
const margin = 0.02

// Figures has the least number of instructions of each operation.
type Figures map[string]float64

// Add adds a measurement.
func (f Figures) Add(what string, n float64) {
	if have, ok := f[what]; !ok || n < have {
		f[what] = n
	}
}

// Counts has the figures of the programs in C and in Go, and those of the program in C with an
// idle thread, if it was measured.
type Counts struct{ C, Go, Idle Figures }

// New returns Counts without figures.
func New() Counts { return Counts{Figures{}, Figures{}, Figures{}} }

func (c Counts) names() []string { return slices.Sorted(maps.Keys(c.Go)) }

func (c Counts) ratio(what string) float64 { return c.Go[what] / c.C[what] }

// Table prints the figures and their ratios.
func (c Counts) Table() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "instructions\tC\tGo\tGo/C\t")
	if len(c.Idle) > 0 {
		fmt.Fprint(w, "C, idle thread\t")
	}
	fmt.Fprintln(w)
	for _, what := range c.names() {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.3f\t", what, c.C[what], c.Go[what], c.ratio(what))
		if n, ok := c.Idle[what]; ok {
			fmt.Fprintf(w, "%.0f\t", n)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// Print prints the ratios for Read. title names the counted operations.
func (c Counts) Print(title string) {
	fmt.Printf("# Instructions of Go divided by those of C, on %s: run -u writes this file.\n# %s\n", title, versions())
	for _, what := range c.names() {
		fmt.Printf("%.3f %s\n", c.ratio(what), what)
	}
}

// versions returns what the ratios depend on besides the library's code.
func versions() string {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err.Error()
	}
	return runtime.Version() + ", Linux " + strings.TrimSpace(string(kernel))
}

// Ratios has the stored ratio of each operation.
type Ratios map[string]float64

// Read reads a file that Print wrote. Without a name, it returns nil.
func Read(name string) (Ratios, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	ratios := make(Ratios)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		ratio, what, _ := strings.Cut(line, " ")
		if ratios[what], err = strconv.ParseFloat(ratio, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return ratios, nil
}

// Grown returns the operations whose ratio exceeds the stored one by more than the margin.
func (r Ratios) Grown(c Counts) (all []string) {
	for _, what := range c.names() {
		if was, known := r[what]; known && c.ratio(what) > was*(1+margin) {
			all = append(all, what)
		}
	}
	return all
}

// Hold reports whether all ratios are stored and none has grown. It prints the ratios that
// have grown, and those that have shrunk by more than the margin, for which the file may be
// updated.
func (r Ratios) Hold(c Counts) bool {
	bad := r.Grown(c)
	ok := len(bad) == 0
	for _, what := range c.names() {
		ratio := c.ratio(what)
		switch was, known := r[what]; {
		case !known:
			fmt.Printf("%s: no ratio is held\n", what)
			ok = false
		case slices.Contains(bad, what):
			fmt.Printf("%s: %.3f times the instructions of C, was %.3f\n", what, ratio, was)
		case ratio < was*(1-margin):
			fmt.Printf("%s: better, %.3f times the instructions of C, was %.3f\n", what, ratio, was)
		}
	}
	if !ok {
		fmt.Printf("run -u, beside the file of the ratios, writes what is held. This was %s.\n", versions())
	}
	return ok
}
