//go:build linux

package main

import (
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestOutput(t *testing.T) {
	var o testOutput
	for line := range strings.Lines(`@=== RUN   TestA
some words
@=== RUN   TestA/sub
@    --- PASS: TestA/sub (0.00s)
@--- PASS: TestA (0.10s)
@=== RUN   TestB
@--- SKIP: TestB (0.00s)
@=== RUN   TestC
--- PASS: TestPrintedByTheTest (0.00s)
@--- FAIL: TestC (1.50s)
@FAIL
`) {
		line = strings.TrimSuffix(line, "\n")
		if text, ok := strings.CutPrefix(line, "@"); ok {
			line = mark + text
		}
		o.line(line)
	}
	if o.passed != 1 || o.failed != 1 || !slices.Equal(o.failures, []string{"TestC"}) {
		t.Errorf("%d passed, %d failed: %v; want 1, 1, TestC", o.passed, o.failed, o.failures)
	}
	if want := []timed{{"TestA", 100 * time.Millisecond}, {"TestC", 1500 * time.Millisecond}}; !slices.Equal(o.times, want) {
		t.Errorf("times %v, want %v", o.times, want)
	}
}

// Each folder of tests/device with tests is among the packages, also folders whose tests are all in
// an external test package, such as verbs_test.
func TestListPackages(t *testing.T) {
	t.Chdir("../..")
	packages, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("tests/device/*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if want := "github.com/goverbs/goverbs/" + filepath.Dir(file); !slices.Contains(packages, want) {
			t.Errorf("%s is not among the packages", want)
		}
	}
}

func TestRunSomewhere(t *testing.T) {
	p := testPackage{dir: "tests/x", tests: []string{"TestAnywhere", "TestTwo"}, listing: rdmatest.Listing{
		Tests: map[string]rdmatest.Needs{"TestTwo": {Devices: []string{"rxe"}, Guests: 2}},
	}}
	if err := runSomewhere([]testPackage{p}); err != nil {
		t.Error(err)
	}
	p.tests = append(p.tests, "TestNowhere")
	p.listing.Tests["TestNowhere"] = rdmatest.Needs{Devices: []string{"erdma"}}
	if err := runSomewhere([]testPackage{p}); err == nil || !strings.Contains(err.Error(), "TestNowhere") || strings.Contains(err.Error(), "TestTwo") {
		t.Errorf("a test that no suite runs: %v", err)
	}
}

func TestNamedOnce(t *testing.T) {
	packages := []testPackage{{dir: "tests/x", tests: []string{"TestA", "TestB"}}, {dir: "tests/y", tests: []string{"TestC"}}}
	if err := namedOnce(packages); err != nil {
		t.Error(err)
	}
	packages[1].tests = append(packages[1].tests, "TestB")
	if err := namedOnce(packages); err == nil || err.Error() != "tests/x and tests/y both have a TestB: rename one of them" {
		t.Errorf("two tests of one name: %v", err)
	}
}

func TestAmount(t *testing.T) {
	for _, c := range []struct {
		name               string
		short, named, less bool
	}{
		{"make test", true, false, true},
		{"a named suite, short", true, true, true},
		{"make test-all", false, false, true},
		{"a named suite", false, true, false},
	} {
		if got := slices.Contains(amount(c.short, c.named), "-test.short"); got != c.less {
			t.Errorf("%s: less: %t, want %t", c.name, got, c.less)
		}
	}
}

func TestMeets(t *testing.T) {
	rxe := rdmatest.Setting{Device: "rxe", Guests: 1}
	quick, two, peers, profile := rxe, rxe, rxe, rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: "vf"}
	mixed := rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: "vf,grh"}
	quick.Short, two.Guests, peers.Peers = true, 2, true
	for _, c := range []struct {
		name  string
		in    rdmatest.Setting
		needs rdmatest.Needs
		want  bool
	}{
		{"any device", rxe, rdmatest.Needs{}, true},
		{"any device, on siw", rdmatest.Setting{Device: "siw", Guests: 1}, rdmatest.Needs{}, false},
		{"any device, on efa", rdmatest.Setting{Device: "efa", Guests: 1}, rdmatest.Needs{}, false},
		{"efa", rdmatest.Setting{Device: "efa", Guests: 1}, rdmatest.Needs{Devices: []string{"rxe", "efa"}}, true},
		{"siw too", rdmatest.Setting{Device: "siw", Guests: 1}, rdmatest.Needs{SIW: true}, true},
		{"any device and siw", rxe, rdmatest.Needs{SIW: true}, true},
		{"mlx5 and siw", rxe, rdmatest.Needs{Devices: []string{"mlx5"}, SIW: true}, false},
		{"no device", rdmatest.Setting{Device: "host", Guests: 1}, rdmatest.Needs{}, false},
		{"the host", rdmatest.Setting{Device: "host", Guests: 1}, rdmatest.Needs{Devices: []string{"host"}}, true},
		{"another device", rxe, rdmatest.Needs{Devices: []string{"mlx5"}}, false},
		{"one of two", rxe, rdmatest.Needs{Devices: []string{"mlx5", "rxe"}}, true},
		{"long", rxe, rdmatest.Needs{Long: true}, true},
		{"long in a quick run", quick, rdmatest.Needs{Long: true}, false},
		{"long on this device", rxe, rdmatest.Needs{LongOn: []string{"rxe"}}, true},
		{"long on this device in a quick run", quick, rdmatest.Needs{LongOn: []string{"rxe"}}, false},
		{"long on another device in a quick run", quick, rdmatest.Needs{LongOn: []string{"mlx5"}}, true},
		{"one guest in two", two, rdmatest.Needs{}, false},
		{"two guests", two, rdmatest.Needs{Guests: 2}, true},
		{"without peers", peers, rdmatest.Needs{}, false},
		{"with peers", peers, rdmatest.Needs{Peers: true}, true},
		{"the usual profile", profile, rdmatest.Needs{}, false},
		{"another profile", profile, rdmatest.Needs{Profile: true}, true},
		{"mixed profiles", mixed, rdmatest.Needs{Profile: true}, false},
		{"a test of mixed profiles", mixed, rdmatest.Needs{Mixed: true}, true},
		{"a test of mixed profiles on one", profile, rdmatest.Needs{Mixed: true, Profile: true}, false},
		{"adapters that lack something", rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: lackingProfiles}, rdmatest.Needs{Lacking: true}, true},
		{"mixed profiles that lack something", rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: lackingProfiles}, rdmatest.Needs{Mixed: true}, false},
		{"what is lacking, on mixed profiles", mixed, rdmatest.Needs{Lacking: true}, false},
		{"no profile", rxe, rdmatest.Needs{Profile: true}, true},
		{"a log", rxe, rdmatest.Needs{Log: true}, false},
	} {
		if got := c.in.Meets(c.needs); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The command to run a failure again is a command line that the runner accepts.
func TestAgain(t *testing.T) {
	r := runner{options: options{short: true, kernel: "7.2"}}
	mlx5 := suite{name: "mlx5"}
	if got, want := r.again(mlx5, "TestA", "TestB"), "go run ./tests/runner -short -k 7.2 -run '^(TestA|TestB)$' mlx5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r = runner{options: options{kernel: "6.1", arch: "arm64", run: "TestA/x", pkg: "tests/x", profile: "vf"}}
	if got, want := r.again(mlx5), "go run ./tests/runner -a arm64 -profile vf -run 'TestA/x' -pkg tests/x mlx5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestChoose(t *testing.T) {
	t.Chdir("../..")
	for _, test := range []struct {
		names             []string
		run, pkg, profile string
		ok                bool
	}{
		{[]string{"rxe", "lint"}, "", "", "", true},
		{[]string{"rxe", "mlx5"}, "TestSRQ", "", "", true},
		{[]string{"rxe", "mlx5"}, "", "tests/device/conformance", "", true},
		{[]string{"rxe", "mlx5"}, "", "tests/device/conformity", "", false},
		{[]string{"unit"}, "TestSRQ", "", "", false},
		{[]string{"unit"}, "", "tests/device/conformance", "", false},
		{nil, "TestSRQ", "", "", false},
		{nil, "", "tests/device/conformance", "", false},
		{[]string{"nothing"}, "", "", "", false},
		{[]string{"mlx5", "mlx5-eth"}, "", "", "connectx7", true},
		{[]string{"mlx5"}, "TestSRQ", "", "vf", true},
		{[]string{"rxe"}, "", "", "vf", false},
		{nil, "", "", "vf", false},
		{[]string{"adapter", "adapter-roce-py"}, "", "", "vf", true},
		{[]string{"mlx5-bytes"}, "", "", "vf", false},
		{[]string{"mlx5-mixed"}, "", "", "vf", false},
	} {
		chosen, err := choose(test.names, options{run: test.run, pkg: test.pkg, profile: test.profile})
		if (err == nil) != test.ok || test.ok && len(chosen) != len(test.names) {
			t.Errorf("%q, -run %q -pkg %q -profile %q: %d suites, %v", test.names, test.run, test.pkg, test.profile, len(chosen), err)
		}
	}
}

// The suites and make targets that the workflows name exist.
func TestWorkflows(t *testing.T) {
	t.Chdir("../..")
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d workflows: %v", len(files), err)
	}
	kernels := regexp.MustCompile(`(?m)^[^# ]+`).FindAllString(read(t, "rig/kernels"), -1)
	runs, makes := 0, 0
	nightly := make(map[string]bool) // suites
	for _, file := range files {
		for _, line := range regexp.MustCompile(`go run \./tests/runner( (?:[^;&|\n']|'[^'\n]*')*)?`).FindAllString(read(t, file), -1) {
			runs++
			var o options
			f := flag.NewFlagSet(line, flag.ContinueOnError)
			f.SetOutput(io.Discard)
			o.flags(f)
			if err := f.Parse(strings.Fields(strings.ReplaceAll(line, "'", ""))[3:]); err != nil {
				t.Errorf("%s: %s: %v", file, line, err)
			} else if chosen, err := choose(f.Args(), o); err != nil {
				t.Errorf("%s: %s: %v", file, line, err)
			} else if night := strings.HasSuffix(file, "nightly.yml"); night && o.count == 0 {
				t.Errorf("%s: %s: without -count, it leaves out what has passed", file, line)
			} else if !slices.Contains(kernels, strings.TrimSuffix(o.kernel, "-16k")) {
				t.Errorf("%s: %s: no such kernel", file, line)
			} else if night && !o.short && o.run == "" && o.pkg == "" {
				for _, s := range chosen {
					nightly[s.name] = true
				}
			}
		}
		for _, line := range regexp.MustCompile(`run: make ([a-z-]+)`).FindAllStringSubmatch(read(t, file), -1) {
			makes++
			if out, err := exec.Command("make", "-n", line[1]).CombinedOutput(); err != nil {
				t.Errorf("%s: make %s: %v\n%s", file, line[1], err, out)
			}
		}
	}
	for _, s := range suites() {
		if s.whole == 0 && !nightly[s.name] {
			t.Errorf("a run of all leaves out %s, and so does the night", s.name)
		}
	}
	if runs < 10 || makes < 10 {
		t.Errorf("found %d calls of the runner and %d of make", runs, makes)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// -a chooses the architecture of suites in the rig.
func TestArchitecture(t *testing.T) {
	for _, test := range []struct {
		arch  string
		names []string
		ok    bool
	}{
		{"arm64", []string{"rxe", "mlx5", "mlx5-eth", "rxe-newer"}, true},
		{"arm64", []string{"siw", "efa"}, true},
		{"amd64", []string{"rxe"}, true},
		{"arm64", []string{"rxe", "unit"}, false},
		{"arm64", []string{"adapter"}, false},
		{"sparc64", []string{"rxe"}, false},
		{"arm64", nil, false},
	} {
		if _, err := choose(test.names, options{arch: test.arch}); (err == nil) != test.ok {
			t.Errorf("-a %s %q: %v", test.arch, test.names, err)
		}
	}
}

// Without names, all suites with a time run.
func TestChooseAll(t *testing.T) {
	for _, short := range []bool{true, false} {
		chosen, err := choose(nil, options{short: short})
		if err != nil || len(chosen) < 5 {
			t.Fatalf("%d suites, %v", len(chosen), err)
		}
		for _, s := range suites() {
			want := short && s.quick > 0 || !short && s.whole > 0
			if got := slices.ContainsFunc(chosen, func(c suite) bool { return c.name == s.name }); got != want {
				t.Errorf("%s, short %t: chosen: %t", s.name, short, got)
			}
		}
	}
}

// Each side takes its own suites first, in order, and then the other side's. The host's side takes suites of
// the rig only with four processors.
func TestNext(t *testing.T) {
	r, err := newRunner(options{}, []suite{{name: "lint"}, {name: "rxe", rig: true}, {name: "mlx5", rig: true}, {name: "unit"}, {name: "adapter", rig: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.processors = 4
	for _, step := range []struct {
		rig  bool
		want string
	}{{true, "rxe"}, {false, "lint"}, {false, "unit"}, {false, "mlx5"}, {true, "adapter"}, {true, ""}, {false, ""}} {
		if s, ok := r.next(step.rig); s.name != step.want || ok != (step.want != "") {
			t.Errorf("the next suite is %q, want %q", s.name, step.want)
		}
	}
	r.processors, r.waiting = 2, []suite{{name: "rxe", rig: true}, {name: "race"}}
	if s, ok := r.next(false); !ok || s.name != "race" {
		t.Errorf("the next suite is %q, want race", s.name)
	}
	if s, ok := r.next(false); ok {
		t.Errorf("%s begins beside another one of the rig", s.name)
	}
	r.end(suite{name: "race"})
	if len(r.running) != 5 {
		t.Errorf("%d suites are running", len(r.running))
	}
	r.end(suite{name: "rxe"})
	if len(r.running) != 4 || r.done[true] == 0 {
		t.Errorf("%d suites are running, %v done", len(r.running), r.done)
	}
}

// The remaining time is the longer of the rig's and the host's, each at its own rate.
func TestLeft(t *testing.T) {
	const min = time.Minute
	r := runner{started: time.Now().Add(-10 * min), done: map[bool]time.Duration{true: 5 * min, false: 10 * min},
		waiting: []suite{{name: "a", whole: 5 * min}, {name: "b", rig: true, whole: 5 * min}}}
	if got := r.left().Round(min); got != 10*min {
		t.Errorf("%v are left, want 10m: the rig takes twice what the table says", got)
	}
	r.waiting[0].whole = 30 * min
	if got := r.left().Round(min); got != 30*min {
		t.Errorf("%v are left, want 30m: the host's is the longer part", got)
	}
	r.waiting, r.running = nil, []running{{suite: suite{name: "c", rig: true, whole: 20 * min}, since: time.Now(), expected: 20 * min}}
	r.expect(suite{name: "c", whole: 20 * min}, 0.25)
	if got := r.left().Round(min); got != 10*min {
		t.Errorf("%v are left, want 10m: a quarter of the tests must run", got)
	}
}

// The packages that only a long run fuzzes have fuzz tests.
func TestSlowToFuzz(t *testing.T) {
	t.Chdir("../..")
	for _, dir := range slowToFuzz {
		files, err := filepath.Glob(dir + "/*_test.go")
		if err != nil || !slices.ContainsFunc(files, func(f string) bool { return strings.Contains(read(t, f), "\nfunc Fuzz") }) {
			t.Errorf("%s has no fuzz test: %v", dir, err)
		}
	}
}
