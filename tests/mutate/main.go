//go:build linux

// Command mutate measures how many mistakes the tests find. It places small mistakes in the
// code, one at a time, and runs the tests that should find them. A mistake that no test finds
// lacks a test, or has no observable effect.
//
//	go run ./tests/mutate [-seed N] [-n N] [-o FILE] [PACKAGE...]
//	go run ./tests/mutate -survivors FILE [-rig] [-o FILE]
//
// The same seed gives the same mutants while the source is the same, and the first of
// them are the same for each -n. The compiler gets them as an overlay, so the tree doesn't
// change. FILE has a line of JSON for each mutant. Mutants in FILE are not run again, so an
// interrupted run can be resumed.
//
// mutate runs tests on the host: those of the package, and those that testedBy lists.
// -survivors runs them for the mutants that survived. With -rig, it runs the tests that need
// a device, in the virtual machines of rig: the packages that inRig lists, as in a quick run
// of tests/runner. A virtual machine boots once for many mutants.
//
// -own and -skip make a first run quick. -only selects files.
//
// The file `equivalent` lists mutants that cannot be distinguished from the original, with
// the reasons.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

var defaults = []string{"./provider/...", "./ioctl/...", "./verbs/...", "./rdmacm/...", "./cmd/ibvtrace/..."}

type options struct {
	seed      uint64
	n         int
	output    string
	survivors string
	only      string
	skip      string
	own, list bool
	rig       bool
	packages  []string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "in-guest" {
		os.Exit(inGuest(os.Args[2]))
	}
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "what picks the mutants")
	flag.IntVar(&o.n, "n", 300, "how many")
	flag.StringVar(&o.output, "o", "", "write the results to this `FILE`")
	flag.StringVar(&o.survivors, "survivors", "", "the mutants that survived in this `FILE`")
	flag.StringVar(&o.only, "only", "", "of these mutants, only those whose file matches this `REGEXP`")
	flag.StringVar(&o.skip, "skip", "", "leave out tests that match this `REGEXP`: slow ones")
	flag.BoolVar(&o.rig, "rig", false, "run the tests that need a device, for the mutants of -survivors")
	flag.BoolVar(&o.own, "own", false, "only the tests of the mutant's own package")
	flag.BoolVar(&o.list, "list", false, "list the mutants and run nothing")
	flag.Parse()
	o.packages = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mutate(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func mutate(ctx context.Context, o options) error {
	if o.survivors != "" && len(o.packages) > 0 || o.rig && o.survivors == "" {
		return errors.New("-rig is for -survivors, which takes no packages")
	}
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	for _, name := range []*string{&o.output, &o.survivors} {
		if *name != "" {
			if *name, err = filepath.Abs(*name); err != nil {
				return err
			}
		}
	}
	if err := os.Chdir(filepath.Dir(strings.TrimSpace(string(mod)))); err != nil {
		return err
	}
	patterns := o.packages
	if len(patterns) == 0 {
		patterns = defaults
	}
	c, err := load(patterns...)
	if err != nil {
		return err
	}
	reasons, err := readEquivalent("tests/mutate/equivalent")
	if err != nil {
		return err
	}
	for _, key := range c.stale(reasons) {
		fmt.Fprintf(os.Stderr, "tests/mutate/equivalent: no such mutant: %s\n", key)
	}
	mutants, err := chosen(c, o)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !only.MatchString(m.File) })
	if o.list {
		for _, m := range mutants {
			fmt.Println(m)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // programs run as other users, too
		return err
	}
	r := &runner{code: c, dir: dir, own: o.own, skip: o.skip, inRig: o.rig, vm: "rig/run"}
	if err := r.prepare(mutants); err != nil {
		return err
	}
	all, err := r.all(ctx, mutants, reasons, o.output)
	summary(os.Stdout, all)
	return err
}

// chosen returns the mutants to run.
func chosen(c *code, o options) ([]mutant, error) {
	if o.survivors == "" {
		return c.sample(o.seed, o.n), nil
	}
	records, err := readResults(o.survivors)
	if err != nil {
		return nil, err
	}
	mutants, gone := c.locate(slices.DeleteFunc(records, func(m mutant) bool { return m.Outcome != survived }))
	for _, m := range gone {
		fmt.Fprintf(os.Stderr, "the code has changed: %s\n", m)
	}
	return mutants, nil
}

// all runs the mutants that the results lack, and adds their outcomes.
func (r *runner) all(ctx context.Context, mutants []mutant, reasons map[string]string, output string) ([]mutant, error) {
	earlier, err := readResults(output)
	if err != nil {
		return nil, err
	}
	have := make(map[string]mutant)
	for _, m := range earlier {
		have[m.key()] = m
	}
	lines := os.Stdout
	if output != "" {
		if lines, err = os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return nil, err
		}
		defer lines.Close()
	}
	var all, rest []mutant
	add := func(m mutant) error {
		all = append(all, m)
		fmt.Fprintf(os.Stderr, "%d/%d %-10s %s:%d %s (%s, %.0f s)\n", len(all), len(mutants), m.Outcome, m.File, m.Line, m.Operator, m.By, m.Seconds)
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(lines, "%s\n", line)
		return err
	}
	for _, m := range mutants {
		done, ok := have[m.key()]
		why, same := reasons[m.key()]
		switch {
		case ok:
			all = append(all, done)
		case same:
			m.Outcome, m.By = equivalent, why
			if err := add(m); err != nil {
				return all, err
			}
		default:
			rest = append(rest, m)
		}
	}
	if r.inRig {
		err := r.rig(ctx, rest, add)
		return all, err
	}
	for _, m := range rest {
		if err := r.host(ctx, &m); err != nil {
			return all, err
		}
		if err := add(m); err != nil {
			return all, err
		}
	}
	return all, nil
}
