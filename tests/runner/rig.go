//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A testPackage is one whose tests say what they need.
type testPackage struct {
	dir     string // in the repository: tests/conformance
	binary  string
	raced   string // built with the race detector, or ""
	listing rdmatest.Listing
	tests   []string
}

// compiled has the packages of tests that may need a device, once compile was called.
var compiled []testPackage

// raced are the packages whose tests run a second time, with the race detector.
var raced = []string{"tests/stress"}

// compile compiles, once, the tests that may need a device and the programs that
// these run, and checks that each of the tests runs somewhere.
func (r *runner) compile() error {
	if compiled != nil {
		return nil
	}
	r.now("compiling")
	const format = `{{range .TestImports}}{{if eq . "github.com/goverbs/goverbs/internal/rdmatest"}}{{$.ImportPath}}{{end}}{{end}}`
	out, err := exec.Command("go", "list", "-f", format, "./tests/...").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	imports := strings.Fields(string(out))
	script := `export CGO_ENABLED=0
		go build -o "$GOVERBS_BIN/" ./cmd/... ./examples/... ./tests/fakemlx5 ./tests/mlx5bytes/play ./cmd/ibvtrace/testdata/hostile
		for source in tests/*/{c,peer}/*.c; do
			folder=${source#tests/}
			gcc -O2 -Wall -o "$GOVERBS_BIN/${folder%%/*}-$(basename "$source" .c)" "$source" -Wl,--as-needed -lmlx5 -libverbs
		done
		go test -c -o "$TESTS/" ` + strings.Join(imports, " ") + `
		CGO_ENABLED=1 go test -race -c -o "$TESTS/race/" ./` + strings.Join(raced, " ./")
	cmd := r.shell(script)
	cmd.Env = append(os.Environ(), "GOVERBS_BIN="+r.bin(), "TESTS="+r.work)
	var said []string
	if err := r.lines(cmd, func(l string) { said = append(said, l) }); err != nil {
		return fmt.Errorf("compiling the tests: %w\n%s", err, strings.Join(said, "\n"))
	}
	for _, i := range imports {
		p := testPackage{dir: strings.TrimPrefix(i, "github.com/goverbs/goverbs/")}
		name := path.Base(p.dir) + ".test"
		p.binary = filepath.Join(r.work, name)
		if slices.Contains(raced, p.dir) {
			p.raced = filepath.Join(r.work, "race", name)
		}
		list := exec.Command(p.binary)
		list.Env = append(os.Environ(), rdmatest.ListVariable+"=1", "GOVERBS_BIN="+r.bin())
		out, err := list.Output()
		if err == nil {
			err = json.Unmarshal(out, &p.listing)
		}
		if err != nil {
			return fmt.Errorf("asking %s what its tests need: %w", p.dir, err)
		}
		names := exec.Command(p.binary, "-test.list", "^Test")
		names.Env = append(os.Environ(), "GOVERBS_BIN="+r.bin())
		if out, err = names.Output(); err != nil {
			return fmt.Errorf("asking %s for its tests: %w", p.dir, err)
		}
		p.tests = strings.Fields(string(out))
		compiled = append(compiled, p)
	}
	return runSomewhere(compiled)
}

func (r *runner) bin() string { return filepath.Join(r.work, "bin") }

// settings are those of all suites in the rig, and the host.
var settings = []rdmatest.Setting{{Device: "host", Guests: 1}}

// runSomewhere returns an error if a test's needs are met by no suite.
func runSomewhere(packages []testPackage) error {
	var errs []error
	for _, p := range packages {
		for _, test := range p.tests {
			if !slices.ContainsFunc(settings, func(s rdmatest.Setting) bool { return s.Meets(p.listing.Of(test)) }) {
				errs = append(errs, fmt.Errorf("%s: no suite has what %s needs: %+v", p.dir, test, p.listing.Of(test)))
			}
		}
	}
	return errors.Join(errs...)
}

// inRig returns what runs the tests that the setting has what they need for.
func inRig(s rdmatest.Setting) func(*runner) {
	settings = append(settings, s)
	return func(r *runner) {
		name := r.suites[r.current].name
		if err := r.compile(); err != nil {
			r.add(result{suite: name, why: err.Error(), again: r.again(name)})
			return
		}
		s := s
		s.Short = r.short
		var jobs []job
		for _, p := range compiled {
			if !slices.ContainsFunc(p.tests, func(t string) bool { return s.Meets(p.listing.Of(t)) && r.matches(t) }) {
				continue
			}
			dir, err := filepath.Abs(p.dir)
			if err != nil {
				panic(err) // there is no working directory
			}
			args := []string{"-test.v=test2json", "-test.timeout=0"}
			if r.short {
				args = append(args, "-test.short")
			}
			if r.options.run != "" {
				args = append(args, "-test.run", r.options.run)
			}
			j := job{Name: path.Base(p.dir), Dir: dir, Binary: p.binary, Args: args}
			jobs = append(jobs, j)
			if p.raced != "" && !r.short {
				j.Name += ", race detector"
				j.Binary = p.raced
				jobs = append(jobs, j)
			}
		}
		if len(jobs) == 0 {
			r.add(result{suite: name, why: "no test runs in it", again: r.again(name)})
		}
		// A guest that dies takes one job with it; the others get another.
		for len(jobs) > 0 && !r.stopped() {
			jobs = r.boot(name, s, jobs)
		}
	}
}

// matches tells whether -run lets a top-level test run.
func (r *runner) matches(test string) bool {
	if r.options.run == "" {
		return true
	}
	top, _, _ := strings.Cut(r.options.run, "/")
	ok, err := regexp.MatchString(top, test)
	return ok && err == nil
}

// boot runs jobs in one boot, and returns those that it didn't come to.
func (r *runner) boot(suite string, s rdmatest.Setting, jobs []job) []job {
	plan := filepath.Join(r.work, "plan")
	text, err := json.Marshal(jobs)
	if err == nil {
		err = os.WriteFile(plan, text, 0o644)
	}
	self, err2 := os.Executable()
	if err = errors.Join(err, err2); err != nil {
		r.add(result{suite: suite, why: err.Error(), again: r.again(suite)})
		return nil
	}
	args := []string{"-k", r.kernel, "-d", s.Device, "-n", fmt.Sprint(s.Guests), "-t", fmt.Sprint(int(2 * silence / time.Second)),
		"-e", "GOVERBS_BIN=" + r.bin(), "-e", "GOVERBS_LONG=" + os.Getenv("GOVERBS_LONG")}
	if s.Log {
		args = append(args, "-l", "-e", "VM_LOG=1", "-o", filepath.Join(r.work, "log"))
	}
	var within []string
	if s.Peers {
		args = append(args, "-e", rdmatest.PeersVariable+"=1")
		within = []string{"tests/vm/in-tree"}
		if out, err := exec.Command("tests/vm/tree").CombinedOutput(); err != nil { // in a guest it cannot be made any more
			r.add(result{suite: suite, why: fmt.Sprintf("tests/vm/tree: %v %s", err, out), again: r.again(suite)})
			return nil
		}
	}
	args = append(append(append(args, "--"), within...), self, "in-guest", plan)

	g := guest{r: r, suite: suite, guests: s.Guests, outputs: make(map[string]*testOutput)}
	began := time.Now()
	r.now(suite + ": booting")
	err = r.lines(exec.Command("tests/vm/run", args...), g.line)
	if r.stopped() {
		return nil
	}
	done := len(g.ended)
	if err == nil && done == len(jobs) {
		return nil
	}
	// What went wrong did so in the job that ran, or, with none left, at the end.
	res := result{suite: suite, took: time.Since(began), why: fmt.Sprintf("tests/vm/run: %v", err), again: r.again(suite)}
	if done < len(jobs) {
		res.suite += ": " + jobs[done].Name
	}
	for _, o := range g.outputs {
		o.flush()
	}
	for _, l := range g.tail {
		fmt.Println("    " + l)
	}
	r.add(res)
	if g.begun == 0 || done >= len(jobs) {
		return nil // it doesn't boot, or has nothing left to do
	}
	return jobs[done+1:]
}

// A guest reads what one guest prints, or two.
type guest struct {
	r       *runner
	suite   string
	guests  int
	outputs map[string]*testOutput // by the prefix that the rig puts before a guest's lines
	begun   int
	ended   map[string]int // how many guests have ended the job
	failed  map[string]string
	tail    []string
}

var prefix = regexp.MustCompile(`^([01]\| )?`)

func (g *guest) line(text string) {
	g.tail = append(g.tail, text)
	if len(g.tail) > 100 {
		g.tail = g.tail[1:]
	}
	who := ""
	if g.guests == 2 {
		who = prefix.FindString(text)
		text = text[len(who):]
	}
	o := g.outputs[who]
	if o == nil {
		o = &testOutput{verbose: g.r.verbose}
		g.outputs[who] = o
	}
	if name, ok := strings.CutPrefix(text, jobBegins); ok {
		g.begun++
		g.r.now(g.suite + ": " + name)
		*o = testOutput{verbose: g.r.verbose}
		return
	}
	line, ok := strings.CutPrefix(text, jobEnds)
	if !ok {
		o.line(text)
		return
	}
	var end jobEnd
	if err := json.Unmarshal([]byte(line), &end); err != nil {
		o.line(text)
		return
	}
	res := result{
		suite: g.suite + ": " + who + end.Name, passed: o.passed, failed: o.failed,
		took: time.Duration(end.Seconds * float64(time.Second)), again: g.r.again(g.suite),
	}
	if len(o.failures) > 0 {
		res.again += fmt.Sprintf(" -run '^(%s)$'", strings.Join(o.failures, "|"))
	} else if end.Status != "" {
		res.why = end.Status
		o.flush()
	}
	if g.ended == nil {
		g.ended = make(map[string]int)
	}
	g.ended[end.Name]++
	g.r.add(res)
}
