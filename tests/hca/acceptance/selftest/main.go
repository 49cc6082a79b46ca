// Selftest runs `ibv selftest` on an adapter that makes mistakes, and with a library that
// does, and prints a table of which mistakes it finds. One that it doesn't find is a gap in
// the test.
//
//	go run ./tests/hca/acceptance/selftest [-k KERNEL] [-d mlx5|mlx5-eth|PROFILE...] [-o DIR] [MUTANT...]
//
// It boots virtual machines of the rig, with a few mutants each. The adapter, tests/hca,
// has all of them: they are turned on by request, one after the other, in a guest that
// keeps running. The exit status is 1 if a mutant survives, or if the test fails on the
// adapter without a mistake.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tests/hca/internal/mutant"
	"github.com/goverbs/goverbs/tests/internal/control"
)

// An outcome is what `ibv selftest` said of one mutant.
type outcome struct {
	Status  string
	Groups  []string // that failed
	First   string   // failure
	Seconds float64
}

var (
	guest   = flag.Bool("guest", false, "run here, in a guest, on the mutants of the arguments")
	devices = flag.String("d", "mlx5", "the rig's `devices`, as of tests/vm/run")
	kernel  = flag.String("k", "6.1", "the guest's `kernel`")
	out     = flag.String("o", "", "keep the reports in this `folder`")
	seconds = flag.Int("t", 12, "time of each run in `seconds`: ibv selftest -t")
	batch   = flag.Int("n", 10, "mutants in each guest")
	only    = flag.String("only", "", "run only these `groups` of ibv selftest, separated by commas, to save time")
	reports = flag.Bool("r", false, "run nothing, but print the table of the reports in the folder -o")
)

func main() {
	flag.Parse()
	var err error
	status := 0
	if *guest {
		err = inGuest(flag.Args())
	} else {
		status, err = onHost(flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "selftest:", err)
		status = 2
	}
	os.Exit(status)
}

// A trial is a run with one mistake, of the adapter or of the library.
type trial struct {
	name, means string
	of          string
	library     *libraryMutant // or nil
}

// trials returns those with the names, or all.
func trials(names []string) (list []trial, err error) {
	for _, m := range mutant.Mistakes() {
		list = append(list, trial{name: m.Name, means: m.Means, of: "adapter"})
	}
	for i := range library {
		m := &library[i]
		list = append(list, trial{name: m.name, means: m.means, of: "library", library: m})
	}
	if len(names) == 0 {
		return list, nil
	}
	for _, n := range names {
		if !slices.ContainsFunc(list, func(t trial) bool { return t.name == n }) {
			return nil, fmt.Errorf("no mutant %q", n)
		}
	}
	return slices.DeleteFunc(list, func(t trial) bool { return !slices.Contains(names, t.name) }), nil
}

// onHost builds the programs, runs the guests, and prints the table.
func onHost(names []string) (status int, err error) {
	list, err := trials(names)
	if err != nil {
		return 0, err
	}
	if *out == "" {
		if *out, err = os.MkdirTemp("", "selftest"); err != nil {
			return 0, err
		}
	}
	if *out, err = filepath.Abs(*out); err != nil {
		return 0, err
	}
	if *reports {
		return table(list)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return 0, err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", *out+string(filepath.Separator), "./cmd/ibv", "./tests/hca/acceptance/selftest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %v\n%s", err, text)
	}
	for _, t := range list {
		if t.library != nil {
			if err := t.library.build(*out); err != nil {
				return 0, err
			}
		}
	}
	for part := range slices.Chunk(list, *batch) {
		if err := boot(part); err != nil {
			return 0, err
		}
	}
	return table(list)
}

// boot runs a guest for some trials.
func boot(part []trial) error {
	args := []string{"-k", *kernel, "-d", *devices, "-o", *out, "-t", "200", "--", filepath.Join(*out, "selftest"), "-guest", "-t", fmt.Sprint(*seconds), "-only", *only, "-o", *out}
	for _, t := range part {
		args = append(args, t.name)
	}
	c := exec.Command("tests/vm/run", args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("tests/vm/run: %w", err)
	}
	return nil
}

// inGuest runs the test without a mistake, and then with each.
func inGuest(names []string) error {
	for _, name := range append([]string{"none"}, names...) {
		program := "ibv"
		switch {
		case name == "none":
		case slices.ContainsFunc(library, func(m libraryMutant) bool { return m.name == name }):
			program += "-" + name
		default:
			if err := (control.Request{Do: "mutate", Kind: name}).Ask(); err != nil {
				return err
			}
		}
		if err := try(name, program); err != nil {
			return err
		}
		if err := (control.Request{Do: "mutate"}).Ask(); err != nil {
			return err
		}
		o, err := read(name)
		if err != nil {
			return err
		}
		fmt.Printf("%-20s %-10s %4.0f s  %s\n", name, o.Status, o.Seconds, strings.Join(o.Groups, " "))
	}
	return nil
}

// A report is what is needed of the report of ibv selftest.
type report struct {
	Status  string
	Seconds float64
	Groups  []group
}

type group struct {
	Name     string
	Failures []failure
}

type failure struct{ Object, Expected, Seen string }

// try runs the test once, and writes its report.
func try(name, program string) error {
	const seed = "1" // the same choices each time
	c := exec.Command(filepath.Join(*out, program), "selftest", "-t", fmt.Sprintf("%ds", *seconds), "-p", "3s", "-seed", seed, "-only", *only, "--json")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	text, err := c.Output()
	if len(text) == 0 { // it has not even reported: then that is what was seen
		text, err = json.Marshal(report{Status: "failed", Groups: []group{{Name: "start", Failures: []failure{{Object: "ibv selftest", Expected: "a report", Seen: fmt.Sprintf("%v: %s", err, &stderr)}}}}})
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(*out, name+".json"), text, 0o644)
}

// read reads a report.
func read(name string) (o outcome, err error) {
	text, err := os.ReadFile(filepath.Join(*out, name+".json"))
	if err != nil {
		return o, err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return o, err
	}
	o.Status, o.Seconds = r.Status, r.Seconds
	for _, g := range r.Groups {
		if len(g.Failures) == 0 {
			continue
		}
		o.Groups = append(o.Groups, g.Name)
		if o.First == "" {
			f := g.Failures[0]
			o.First = fmt.Sprintf("%s: expected %s, but %s", f.Object, f.Expected, f.Seen)
		}
	}
	return o, nil
}

// table prints what was found, in Markdown.
func table(list []trial) (status int, err error) {
	sound, err := read("none")
	if err != nil {
		return 0, err
	}
	if len(sound.Groups) > 0 {
		status = 1
		fmt.Printf("Without a mistake: %s\n\n", sound.First)
	}
	fmt.Print("| mistake | of the | found by | first failure |\n|---|---|---|---|\n")
	caught := 0
	for _, m := range list {
		o, err := read(m.name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			o.Groups = []string{"**not run**"}
			status = 1
		case err != nil:
			return 0, err
		case len(o.Groups) == 0:
			o.Groups = []string{"**nothing**"}
			status = 1
		default:
			caught++
		}
		first := o.First
		if len(first) > 240 {
			first = first[:240] + "…"
		}
		fmt.Printf("| %s | %s | %s | %s |\n", m.means, m.of, strings.Join(o.Groups, ", "), strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(first))
	}
	fmt.Printf("\n%d of %d found.\n", caught, len(list))
	return status, nil
}
