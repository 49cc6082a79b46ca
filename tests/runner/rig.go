//go:build linux

package main

import (
	"cmp"
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
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A testPackage is a package whose tests declare what they need.
type testPackage struct {
	dir     string // in the repository: tests/device/conformance
	binary  string
	raced   string // built with the race detector, or ""
	listing rdmatest.Listing
	tests   []string
}

// tests has the packages of tests that may need a device, compiled once for an architecture.
type tests struct {
	arch     string
	once     sync.Once
	packages []testPackage
	err      error
}

// raced lists the packages whose tests run a second time, with the race detector.
var raced = []string{"tests/device/stress"}

// compile compiles for an architecture the tests that may need a device, the programs that
// they run, and the runner itself. A quick run leaves out what only long tests need. compile
// checks that a suite runs each of the tests, and that no two have the same name.
func (r *runner) compile(arch string) ([]testPackage, error) {
	imports, err := listPackages()
	if err != nil {
		return nil, err
	}
	script := `export CGO_ENABLED=0
		compiler=(gcc)
		if [ "$GOARCH" = arm64 ]; then
			tests/vm/setup gcc-aarch64-linux-gnu qemu-user-static
			peers=$(tests/vm/peers arm64)
			tests/vm/peers arm64 trixie # for tests/vm/in-tree: a guest cannot create it
			compiler=(aarch64-linux-gnu-gcc --sysroot="$peers")
		else
			tests/vm/tree # the same
		fi
		go build -o "$TESTS/" ./tests/runner
		go build -o "$GOVERBS_BIN/" ./cmd/... ./examples/... ./tests/fakemlx5 ./tests/mlx5bytes/play ./cmd/ibvtrace/testdata/hostile
		for source in tests/{device/*,mlx5bytes}/c/*.c; do
			folder=${source%/c/*}
			"${compiler[@]}" -O2 -Wall -o "$GOVERBS_BIN/${folder##*/}-$(basename "$source" .c)" "$source" -Wl,--as-needed -lmlx5 -libverbs
		done
		go test -c -ldflags=-w -o "$TESTS/" ` + strings.Join(imports, " ") + `
		[ -z "$SHORT" ] || exit 0
		go build -C examples/grpc -o "$GOVERBS_BIN/" .
		if [ "$GOARCH" = arm64 ]; then
			go test -C tests/device/rsocket/nettest -c -o "$GOVERBS_BIN/nettest.test" .
			exit
		fi
		export CGO_ENABLED=1
		go test -C tests/device/rsocket/nettest -race -c -o "$GOVERBS_BIN/nettest.test" .
		go test -race -c -o "$TESTS/race/" ./` + strings.Join(raced, " ./")
	cmd := shell(script)
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOVERBS_BIN="+r.bin(arch), "TESTS="+r.built(arch), "SHORT="+map[bool]string{true: "1"}[r.short])
	var said []string
	if err := r.lines(cmd, func(l string) { said = append(said, l) }); err != nil {
		return nil, fmt.Errorf("compiling the tests: %w\n%s", err, strings.Join(said, "\n"))
	}
	// Even without a device, the tests can be listed.
	command := func(arg ...string) *exec.Cmd {
		if arch == "arm64" {
			arg = append([]string{"qemu-aarch64-static"}, arg...)
		}
		return exec.Command(arg[0], arg[1:]...)
	}
	var compiled []testPackage
	for _, i := range imports {
		p := testPackage{dir: strings.TrimPrefix(i, "github.com/goverbs/goverbs/")}
		name := path.Base(p.dir) + ".test"
		p.binary = filepath.Join(r.built(arch), name)
		if slices.Contains(raced, p.dir) && arch == "amd64" {
			p.raced = filepath.Join(r.built(arch), "race", name)
		}
		list := command(p.binary)
		list.Env = append(os.Environ(), rdmatest.ListVariable+"=1", "GOVERBS_BIN="+r.bin(arch))
		out, err := list.Output()
		if err == nil {
			err = json.Unmarshal(out, &p.listing)
		}
		if err != nil {
			return nil, fmt.Errorf("asking %s what its tests need: %w", p.dir, err)
		}
		names := command(p.binary, "-test.list", "^Test")
		names.Env = append(os.Environ(), "GOVERBS_BIN="+r.bin(arch))
		if out, err = names.Output(); err != nil {
			return nil, fmt.Errorf("asking %s for its tests: %w", p.dir, err)
		}
		p.tests = strings.Fields(string(out))
		compiled = append(compiled, p)
	}
	return compiled, errors.Join(runSomewhere(compiled), namedOnce(compiled))
}

// listPackages returns the import paths of the packages whose tests declare what they need.
func listPackages() ([]string, error) {
	const format = `{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}`
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} "+format, "./tests/...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if slices.Contains(words[1:], "github.com/goverbs/goverbs/internal/rdmatest") && path.Base(words[0]) != "runner" {
			packages = append(packages, words[0])
		}
	}
	return packages, nil
}

// built and bin return the folders of the tests and of the programs that are compiled for an
// architecture.
func (r *runner) built(arch string) string { return filepath.Join(r.work, arch) }
func (r *runner) bin(arch string) string   { return filepath.Join(r.built(arch), "bin") }

// runSomewhere returns an error if a test's needs are met by no suite.
func runSomewhere(packages []testPackage) error {
	var errs []error
	for _, p := range packages {
		for _, test := range p.tests {
			needs := p.listing.Of(test)
			somewhere := rdmatest.Setting{Device: "host", Guests: 1}.Meets(needs) ||
				slices.ContainsFunc(rigSuites, func(s rigSuite) bool { return s.setting.Meets(needs) })
			if !somewhere {
				errs = append(errs, fmt.Errorf("%s: no suite meets the needs of %s: %+v", p.dir, test, needs))
			}
		}
	}
	return errors.Join(errs...)
}

// namedOnce returns an error if two packages have a test of the same name: -run could not run
// only one of them.
func namedOnce(packages []testPackage) error {
	var errs []error
	first := make(map[string]string)
	for _, p := range packages {
		for _, test := range p.tests {
			if other, ok := first[test]; ok {
				errs = append(errs, fmt.Errorf("%s and %s both have a %s: rename one of them", other, p.dir, test))
				continue
			}
			first[test] = p.dir
		}
	}
	return errors.Join(errs...)
}

func (rs rigSuite) run(r *runner, s suite) {
	tests := r.tests[cmp.Or(rs.setting.Arch, r.arch, "amd64")]
	tests.once.Do(func() {
		r.now(s, "compiling")
		tests.packages, tests.err = r.compile(tests.arch)
	})
	if err := tests.err; err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return
	}
	setting := rs.setting
	setting.Short = r.short || rs.part != nil
	setting.Arch = tests.arch
	if r.profile != "" {
		setting.Profile = r.profile
	}
	amount, env := amountOf(setting.Short, r.named)
	args := append([]string{"-test.v=test2json", "-test.timeout=0"}, amount...)
	if r.options.run != "" {
		args = append(args, "-test.run", r.options.run)
	}
	var jobs []job
	for _, p := range tests.packages {
		if r.pkg != "" && p.dir != filepath.Clean(r.pkg) || rs.part != nil && !slices.Contains(rs.part.packages, p.dir) {
			continue
		}
		if !slices.ContainsFunc(p.tests, func(t string) bool { return setting.Meets(p.listing.Of(t)) && r.matches(t) }) {
			continue
		}
		dir, err := filepath.Abs(p.dir)
		if err != nil {
			panic(err) // the working directory doesn't exist
		}
		j := job{Name: path.Base(p.dir), Dir: dir, Binary: p.binary, Args: args, Env: env}
		jobs = append(jobs, j)
		if p.raced != "" && !setting.Short {
			j.Name += ", race detector"
			j.Binary = p.raced
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		r.add(result{suite: s.name, why: "no test runs in it", again: r.again(s)})
	}
	kernel := r.kernel
	if rs.part != nil {
		kernel = rs.part.kernel
	}
	// A guest that dies fails one job. The remaining jobs run in another guest.
	for len(jobs) > 0 && !r.stopped() {
		jobs = r.boot(s, setting, kernel, jobs)
	}
}

// amountOf returns what tells test binaries which tests run, and with how many of their parameters: all
// tests unless the run is short, and then with all parameters if the suite is named.
func amountOf(short, named bool) (flags, env []string) {
	if short || !named {
		flags = []string{"-test.short"}
	}
	if !short {
		env = []string{rdmatest.WholeVariable + "=1"}
	}
	return flags, env
}

// matches reports whether -run selects a top-level test.
func (r *runner) matches(test string) bool {
	if r.options.run == "" {
		return true
	}
	top, _, _ := strings.Cut(r.options.run, "/")
	ok, err := regexp.MatchString(top, test)
	return ok && err == nil
}

// boot runs jobs in one boot of a kernel, and returns those that it didn't reach.
func (r *runner) boot(s suite, setting rdmatest.Setting, kernel string, jobs []job) []job {
	plan := filepath.Join(r.work, "plan-"+s.name)
	text, err := json.Marshal(jobs)
	if err == nil {
		err = os.WriteFile(plan, text, 0o644)
	}
	if err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return nil
	}
	device := setting.Device
	if setting.Profile != "" {
		device += ":" + setting.Profile
	}
	args := []string{"-a", setting.Arch, "-k", kernel, "-d", device, "-n", fmt.Sprint(setting.Guests), "-t", fmt.Sprint(int(2 * silence / time.Second)),
		"-e", "GOVERBS_BIN=" + r.bin(setting.Arch), "-e", "GOVERBS_LONG=" + os.Getenv("GOVERBS_LONG"),
		"-e", rdmatest.ProfileVariable + "=" + setting.Profile}
	if setting.Log {
		args = append(args, "-l", "-e", "VM_LOG=1", "-o", filepath.Join(r.work, "log-"+s.name))
	}
	var within []string
	if setting.Peers {
		args = append(args, "-e", rdmatest.PeersVariable+"=1")
		within = []string{"tests/vm/in-tree"}
	}
	args = append(append(append(args, "--"), within...), filepath.Join(r.built(setting.Arch), "runner"), "in-guest", plan)

	g := guest{r: r, suite: s, guests: setting.Guests, outputs: make(map[string]*testOutput)}
	began := time.Now()
	r.now(s, "booting")
	err = r.lines(exec.Command("tests/vm/run", args...), g.line)
	if r.stopped() {
		return nil
	}
	done := len(g.ended)
	if err == nil && done == len(jobs) {
		return nil
	}
	// The failure belongs to the running job or, if none is left, to the end of the run.
	res := result{suite: s.name, took: time.Since(began), why: fmt.Sprintf("tests/vm/run: %v", err), again: r.again(s)}
	if done < len(jobs) {
		res.suite += ": " + jobs[done].Name
	}
	for _, o := range g.outputs {
		o.flush()
	}
	for _, l := range g.tail {
		fmt.Println("    " + l)
		if said, ok := strings.CutPrefix(l, "vm: "); ok {
			res.said = append(res.said, said)
		}
	}
	r.add(res)
	if g.begun == 0 || done >= len(jobs) {
		return nil // the guest doesn't boot, or no job is left
	}
	return jobs[done+1:]
}

// A guest reads the output of one guest or of two.
type guest struct {
	r       *runner
	suite   suite
	guests  int
	outputs map[string]*testOutput // by the prefix that the rig puts before a guest's lines
	begun   int
	ended   map[string]int // how many guests have ended the job
	tail    []string
}

var prefix = regexp.MustCompile(`^([01]\| )?`)

func (g *guest) line(text string) {
	g.tail = append(g.tail, text)
	if len(g.tail) > 300 {
		g.tail = g.tail[1:]
	}
	if strings.HasPrefix(text, "vm: ") && strings.HasSuffix(text, ": once more") {
		fmt.Println("   " + text)
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
		g.r.now(g.suite, name)
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
		suite: g.suite.name + ": " + who + end.Name, passed: o.passed, failed: o.failed,
		took: time.Duration(end.Seconds * float64(time.Second)), again: g.r.again(g.suite, o.failures...),
	}
	if len(o.failures) == 0 && end.Status != "" {
		res.why = end.Status
		o.flush()
	}
	res.said, res.failures = o.said, o.failures
	g.r.timed(res.suite, o.times)
	if g.ended == nil {
		g.ended = make(map[string]int)
	}
	g.ended[end.Name]++
	g.r.add(res)
}
