// Selftest runs `ibv selftest` on an adapter that makes mistakes, and with a library that
// makes mistakes, and prints a table of the mistakes that it finds. A mistake that isn't
// found is a gap in the test.
//
//	go run ./tests/selftest [-k KERNEL] [-d mlx5|mlx5-eth|PROFILE...] [-o DIR] [MUTANT...]
//
// It boots virtual machines of the rig, with a few mutants each. The adapter, rig/connectx,
// contains all of its mistakes. Requests turn them on, one after the other, in a guest that
// keeps running. A first run is short. On a busy machine it may not reach the mistake: if it
// finds none, a second run has the default time. The exit status is 1 if a mutant survives,
// or if the test fails on the adapter without a mistake.
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

	"github.com/goverbs/goverbs/tests/internal/control"
)

// An outcome is the result of `ibv selftest` for one mutant.
type outcome struct {
	Status  string
	Groups  []string // the failed groups
	First   string   // the first failure
	Seconds float64
}

var (
	guest   = flag.Bool("guest", false, "run here, in a guest, on the mutants of the arguments")
	devices = flag.String("d", "mlx5", "the rig's `devices`, as of rig/run")
	kernel  = flag.String("k", "6.1", "the guest's `kernel`")
	out     = flag.String("o", "", "keep the reports in this `folder`")
	seconds = flag.Int("t", 12, "time of each first run in `seconds`: ibv selftest -t")
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

// sound is the name of the run without a mistake.
const sound = "none"

// A trial is a run with one mistake, of the adapter or of the library.
type trial struct {
	name, means string
	of          string
	library     *libraryMutant // or nil
}

// A mistake is a mistake that the adapter makes on request.
type mistake struct{ Name, Means string }

// mistakes returns the mistakes that the adapter's program lists.
func mistakes() (list []mistake, err error) {
	text, err := exec.Command("go", "run", "-C", "rig", "./connectx", "-mistakes").Output()
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("asking rig/connectx for its mistakes: %w", err)
	}
	return list, nil
}

// trials returns the trials with the names, or all.
func trials(adapter []mistake, only []string) (list []trial, err error) {
	for _, m := range adapter {
		list = append(list, trial{name: m.Name, means: m.Means, of: "adapter"})
	}
	for i := range library {
		m := &library[i]
		list = append(list, trial{name: m.name, means: m.means, of: "library", library: m})
	}
	if len(only) == 0 {
		return list, nil
	}
	for _, n := range only {
		if !slices.ContainsFunc(list, func(t trial) bool { return t.name == n }) {
			return nil, fmt.Errorf("no mutant %q", n)
		}
	}
	return slices.DeleteFunc(list, func(t trial) bool { return !slices.Contains(only, t.name) }), nil
}

// onHost builds the programs, runs the guests, and prints the table.
func onHost(only []string) (status int, err error) {
	adapter, err := mistakes()
	if err != nil {
		return 0, err
	}
	list, err := trials(adapter, only)
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
	build := exec.Command("go", "build", "-trimpath", "-o", *out+string(filepath.Separator), "./cmd/ibv", "./tests/selftest")
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
		if err := runAll(part); err != nil {
			return 0, err
		}
	}
	return table(list)
}

// died stands in place of a group if the guest died, so that nothing was found.
const died = "**the guest died**"

// runAll runs trials in one guest. If the guest dies, the current trial is reported as died,
// and another guest runs the remaining trials.
func runAll(part []trial) error {
	for len(part) > 0 {
		for _, name := range append([]string{sound}, names(part)...) {
			if err := os.Remove(reportOf(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		err := boot(part)
		if err == nil {
			return nil
		}
		died, err := diedAt(part, err)
		if err != nil {
			return err
		}
		part = part[died+1:]
	}
	return nil
}

// diedAt finds the trial at which a guest died, the first trial without a report, and writes
// its report. Without a mistake, no guest may die.
func diedAt(part []trial, why error) (int, error) {
	if _, err := os.Stat(reportOf(sound)); err != nil {
		return 0, why
	}
	for i, t := range part {
		if _, err := os.Stat(reportOf(t.name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		fmt.Fprintf(os.Stderr, "selftest: %s: %v\n", t.name, why)
		return i, write(t.name, failed(died, failure{Object: "the virtual machine", Expected: "to live", Seen: why.Error()}))
	}
	return 0, why // all trials have ended
}

func names(list []trial) (names []string) {
	for _, t := range list {
		names = append(names, t.name)
	}
	return names
}

// boot runs a guest for some trials.
func boot(part []trial) error {
	args := []string{"-k", *kernel, "-d", *devices, "-o", *out, "-t", "400", "--", filepath.Join(*out, "selftest"), "-guest", "-t", fmt.Sprint(*seconds), "-only", *only, "-o", *out}
	args = append(args, names(part)...)
	c := exec.Command("rig/run", args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("rig/run: %w", err)
	}
	return nil
}

// inGuest runs the test without a mistake, and then with each mistake.
func inGuest(mutants []string) error {
	for _, name := range append([]string{sound}, mutants...) {
		program := "ibv"
		switch {
		case name == sound:
		case slices.ContainsFunc(library, func(m libraryMutant) bool { return m.name == name }):
			program += "-" + name
		default:
			if err := (control.Request{Do: "mutate", Kind: name}).Ask(); err != nil {
				return err
			}
		}
		o, err := try(name, program, *seconds)
		if err == nil && o.Status == "shortened" && name != sound {
			fmt.Printf("%-20s %-10s %4.0f s  once more, in the default time\n", name, o.Status, o.Seconds)
			o, err = try(name, program, defaultSeconds)
		}
		if err != nil {
			return err
		}
		if err := (control.Request{Do: "mutate"}).Ask(); err != nil {
			return err
		}
		fmt.Printf("%-20s %-10s %4.0f s  %s\n", name, o.Status, o.Seconds, strings.Join(o.Groups, " "))
	}
	return nil
}

// A report has the needed fields of the report of ibv selftest.
type report struct {
	Status  string
	Seconds float64
	Groups  []groupReport
}

type groupReport struct {
	Name     string
	Failures []failure
}

type failure struct{ Object, Expected, Seen string }

// defaultSeconds is the default of ibv selftest -t.
const defaultSeconds = 150

// try runs the test once, and writes and returns its report.
func try(name, program string, seconds int) (outcome, error) {
	const seed = "1" // the same choices each time
	c := exec.Command(filepath.Join(*out, program), "selftest", "-t", fmt.Sprintf("%ds", seconds), "-p", "3s", "--seed", seed, "--only", *only, "--json")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	text, err := c.Output()
	if len(text) == 0 { // the test printed no report: its error is the result
		text = failed("start", failure{Object: "ibv selftest", Expected: "a report", Seen: fmt.Sprintf("%v: %s", err, &stderr)})
	}
	if err := write(name, text); err != nil {
		return outcome{}, err
	}
	return read(name)
}

// failed returns a report for a run without one.
func failed(group string, f failure) []byte {
	text, err := json.Marshal(report{Status: "failed", Groups: []groupReport{{Name: group, Failures: []failure{f}}}})
	if err != nil {
		panic(err) // it has only texts
	}
	return text
}

func reportOf(name string) string { return filepath.Join(*out, name+".json") }

func write(name string, text []byte) error { return os.WriteFile(reportOf(name), text, 0o644) }

// read reads a report.
func read(name string) (o outcome, err error) {
	text, err := os.ReadFile(reportOf(name))
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

// table prints the results, in Markdown.
func table(list []trial) (status int, err error) {
	right, err := read(sound)
	if err != nil {
		return 0, err
	}
	if len(right.Groups) > 0 {
		status = 1
		fmt.Printf("Without a mistake: %s\n\n", right.First)
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
		case o.Groups[0] == died:
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
