package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/input"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/likeness"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

const diffUsage = `Usage: ibvtrace diff [-e EXPR] [-v] [-o FILE] FILE FILE

Compare two traces that ibvtrace --json or ibvtrace record has written. Lines of the
first only begin with "-", those of the second only with "+". Each thread is compared
with the one of the same number. What differs in each run is not compared: times,
and the numbers of processes, threads, files, objects, keys and addresses, which are
replaced by numbers in the order of their first use. Status 1 means that they differ,
or trouble.

  -e EXPR   compare only events that EXPR selects, see ibvtrace -h; may be repeated
  -v        compare everything, also the programs' handles and drivers' data
  -o FILE   write to FILE instead of stdout
  -h        print this help

Examples:
  ibvtrace --json -o c.json rping -c -a 192.168.1.2 -C 1
  ibvtrace --json -o go.json ibv rping -c -a 192.168.1.2 -C 1
  ibvtrace diff -e '!map,open' c.json go.json
`

type diffOptions struct {
	output  string
	verbose bool
	filter  filter.Filter
}

func diffFlags(o *diffOptions) *flag.FlagSet {
	f := flag.NewFlagSet("ibvtrace diff", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.output, "o", "", "write to `FILE`")
	f.BoolVar(&o.verbose, "v", false, "compare everything")
	f.Func("e", "compare events by `EXPR`; may be repeated", o.filter.Add)
	return f
}

// errDiffer says that traces differ, which is no error.
var errDiffer = errors.New("differ")

// diff compares two traces.
func diff(args []string) error {
	var o diffOptions
	files, err := parseFiles(diffFlags(&o), args)
	if err != nil {
		return err
	}
	if len(files) != 2 {
		return usageError{fmt.Errorf("%d files given, want 2", len(files))}
	}
	var sides [2]side
	report, bad := complain()
	for i, file := range files {
		sides[i] = side{lines: make(map[thread][]string), o: &o}
		renamed := likeness.NewRenamer(&sides[i])
		err := input.Each([]string{file}, report, func(_ int, e *event.Event) error {
			if e.Kind == event.Note || !o.filter.Match(e) {
				return nil
			}
			return renamed.Event(e)
		})
		if err != nil {
			return err
		}
	}
	out, err := openOutput(o.output, os.Stdout)
	if err != nil {
		return err
	}
	out.buffer()
	differ := compareSides(out, files, &sides[0], &sides[1])
	out.close()
	switch {
	case out.err != nil:
		return out.err
	case *bad:
		return errBad
	case differ:
		return errDiffer
	}
	return nil
}

type thread struct{ pid, tid int }

// A side is a Sink that collects the lines of each thread.
type side struct {
	o     *diffOptions
	lines map[thread][]string
}

func (s *side) Event(e *event.Event) error {
	var b bytes.Buffer
	w := text.NewWriter(&b, text.Options{Clock: text.None, Verbose: s.o.verbose, MaxBytes: 32})
	if err := w.Event(e); err != nil {
		return err
	}
	t := thread{e.PID, e.TID}
	s.lines[t] = append(s.lines[t], strings.TrimSuffix(b.String(), "\n"))
	return nil
}

func (s *side) Close() error { return nil }

// context is the number of equal lines that are shown before and after others.
const context = 3

// compareSides writes how two traces differ, and reports whether they do.
func compareSides(out io.Writer, files []string, a, b *side) (differ bool) {
	var threads []thread
	for _, s := range []*side{a, b} {
		for t := range s.lines {
			threads = append(threads, t)
		}
	}
	slices.SortFunc(threads, func(x, y thread) int { return cmp.Or(cmp.Compare(x.pid, y.pid), cmp.Compare(x.tid, y.tid)) })
	for _, t := range slices.Compact(threads) {
		edits := likeness.Diff(a.lines[t], b.lines[t])
		changed := func(e likeness.Edit) bool { return e.Op != ' ' }
		if !slices.ContainsFunc(edits, changed) {
			continue
		}
		if !differ {
			fmt.Fprintf(out, "--- %s\n+++ %s\n", files[0], files[1])
		}
		differ = true
		skipped := false
		for i, e := range edits {
			if slices.ContainsFunc(edits[max(0, i-context):min(len(edits), i+context+1)], changed) {
				if skipped || i == 0 {
					fmt.Fprintf(out, "@@ thread %d of process %d, line %d @@\n", t.tid, t.pid, i+1)
				}
				fmt.Fprintf(out, "%c%s\n", e.Op, e.Line)
				skipped = false
			} else {
				skipped = true
			}
		}
	}
	return differ
}
