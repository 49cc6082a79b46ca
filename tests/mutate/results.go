//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// readResults reads the results of a run. A missing file has none.
func readResults(name string) ([]mutant, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []mutant
	for d := json.NewDecoder(file); ; {
		var m mutant
		if err := d.Decode(&m); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, m)
	}
}

// readEquivalent reads the table of mutants that no test can tell from the original, by
// their keys, with the reasons. Its lines have the file, the function, the line before and
// after the edit, and the reason, separated by tabs.
func readEquivalent(name string) (map[string]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reasons := make(map[string]string)
	for s := bufio.NewScanner(file); s.Scan(); {
		line := s.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, '\t')
		if strings.Count(line, "\t") != 4 {
			return nil, fmt.Errorf("%s: not five fields: %q", name, line)
		}
		reasons[line[:i]] = line[i+1:]
	}
	return reasons, nil
}

// stale returns the keys of the table that match no mutant, although their file belongs to
// these packages.
func (c *code) stale(reasons map[string]string) []string {
	have := make(map[string]bool)
	for _, p := range c.packages {
		for _, e := range p.edits {
			have[c.mutant(p, e).key()] = true
		}
	}
	var stale []string
	for key := range reasons {
		file, _, _ := strings.Cut(key, "\t")
		if _, ok := c.sources[file]; ok && !have[key] {
			stale = append(stale, key)
		}
	}
	slices.Sort(stale)
	return stale
}

// summary writes the table by package, and the mutants that survived.
func summary(w io.Writer, all []mutant) {
	counts := make(map[string]map[outcome]int)
	var names []string
	for _, m := range all {
		for _, name := range []string{filepath.Dir(m.File), "total"} {
			if counts[name] == nil {
				counts[name] = make(map[outcome]int)
				names = append(names, name)
			}
			counts[name][m.Outcome]++
		}
	}
	slices.Sort(names)
	if i := slices.Index(names, "total"); i >= 0 {
		names = append(slices.Delete(names, i, i+1), "total")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "mutants\tkilled\tsurvived\tequivalent\tbroken\tkilled of those that differ\t  package")
	for _, name := range names {
		n := counts[name]
		dead := n[killed] + n[hung]
		share := "-"
		if dead+n[survived] > 0 {
			share = fmt.Sprintf("%d %%", dead*100/(dead+n[survived]))
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%s\t  %s\n", dead+n[survived]+n[equivalent]+n[broken], dead, n[survived], n[equivalent], n[broken], share, name)
	}
	t.Flush()
	for _, m := range all {
		if m.Outcome == survived {
			fmt.Fprintf(w, "\n%s\n", m)
		}
	}
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%d: %s in %s\n    - %s\n    + %s", m.File, m.Line, m.Column, m.Operator, m.Function, m.Before, m.After)
}
