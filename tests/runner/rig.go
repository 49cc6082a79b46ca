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
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A testPackage is a package whose tests declare their needs.
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

// raced lists the packages whose tests also run with the race detector, in suites that are named.
var raced = []string{"tests/device/stress"}

// compile compiles for an architecture the tests that may need a device, the programs that
// they run, and the runner itself. A quick run leaves out programs that only long tests need. compile
// checks that each test runs in some suite, and that no two have the same name.
func (r *runner) compile(arch string) ([]testPackage, error) {
	imports, err := listPackages()
	if err != nil {
		return nil, err
	}
	script := `compiler=(gcc)
		if [ "$GOARCH" = arm64 ]; then
			rig/setup gcc-aarch64-linux-gnu qemu-user-static
			peers=$(rig/peers arm64)
			rig/peers arm64 trixie # for rig/in-tree: a guest cannot create it
			compiler=(aarch64-linux-gnu-gcc --sysroot="$peers")
		else
			rig/tree # the same
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
		[ -z "$VALKEY" ] || tests/device/valkey/build "$GOVERBS_BIN"
		[ -z "$JUDGES" ] || tests/device/s3rdma/judges/build -o "$GOVERBS_BIN/judges.test"
		[ -z "$NAMED" ] || go test -race -c -o "$TESTS/race/" ./` + strings.Join(raced, " ./")
	cmd := shell(script)
	set := map[bool]string{true: "1"}
	// Programs of other projects take minutes to build.
	wants := func(pkg string) string {
		return set[r.named && (r.pkg == "" && r.options.run == "" || path.Clean(r.pkg) == pkg)]
	}
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOVERBS_BIN="+r.bin(arch), "TESTS="+r.built(arch), "SHORT="+set[r.short], "NAMED="+set[r.named],
		"VALKEY="+wants("tests/device/valkey"), "JUDGES="+wants("tests/device/s3rdma"))
	began := time.Now()
	var said []string
	if err := r.lines(cmd, func(l string) { said = append(said, l) }); err != nil {
		return nil, fmt.Errorf("compiling the tests: %w\n%s", err, strings.Join(said, "\n"))
	}
	if err := removeOlder(r.built(arch), began); err != nil {
		return nil, err
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
		if r.named && !r.short && arch == "amd64" && slices.Contains(raced, p.dir) {
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

// removeOlder removes the files in and below a folder that no compiler has written or touched
// since: programs that no longer exist.
func removeOlder(dir string, since time.Time) error {
	list, err := trees(dir)
	if err != nil {
		return err
	}
	for _, path := range list {
		info, err := os.Stat(path)
		if err == nil && info.ModTime().Before(since.Truncate(time.Second)) {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listPackages returns the import paths of the packages whose tests declare their needs.
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
func (r *runner) built(arch string) string { return filepath.Join(r.programs.dir, arch) }
func (r *runner) bin(arch string) string   { return filepath.Join(r.built(arch), "bin") }

// runSomewhere returns an error if no suite meets a test's needs.
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
	tests := &r.tests
	tests.once.Do(func() {
		r.now(s, "compiling")
		tests.packages, tests.err = r.compile(tests.arch)
	})
	if err := tests.err; err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return
	}
	setting := rs.setting
	setting.Short = r.short
	setting.Arch = tests.arch
	if r.profile != "" {
		setting.Profile = r.profile
	}
	where, err := r.place(setting, r.kernel)
	if err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return
	}
	var jobs []job
	all := 0
	for _, p := range tests.packages {
		if r.pkg != "" && p.dir != filepath.Clean(r.pkg) {
			continue
		}
		var chosen []string
		for _, t := range p.tests {
			needs := p.listing.Of(t)
			if setting.Meets(needs) && r.matches(t) && (r.named || r.short || !rs.repeats(needs)) {
				chosen = append(chosen, t)
			}
		}
		if len(chosen) == 0 {
			continue
		}
		all += len(chosen)
		dir, err := filepath.Abs(p.dir)
		if err != nil {
			panic(err) // the working directory doesn't exist
		}
		j := job{Name: path.Base(p.dir), Dir: dir, Binary: p.binary, Tests: chosen}
		jobs = r.due(jobs, s, where, j)
		if p.raced != "" {
			j.Name += ", race detector"
			j.Binary = p.raced
			all += len(chosen)
			jobs = r.due(jobs, s, where, j)
		}
	}
	if all == 0 {
		r.add(result{suite: s.name, why: "no test runs in it", again: r.again(s)})
	}
	due := 0
	for _, j := range jobs {
		due += len(j.Tests)
	}
	r.expect(s, float64(due)/float64(max(all, 1)))
	// A guest that dies fails one job. The remaining jobs run in another guest.
	for len(jobs) > 0 && !r.stopped() {
		jobs = r.boot(s, where, jobs)
	}
}

// repeats reports whether a run of all suites need not run a test in this suite: a test that is long on this
// device, or a long test that an earlier suite runs, because the code is the same. Adapters of a profile count
// as other devices.
func (rs rigSuite) repeats(n rdmatest.Needs) bool {
	if rs.setting.Profile != "" {
		return false
	}
	if slices.Contains(n.LongOn, rs.setting.Device) {
		return true
	}
	for _, before := range rigSuites {
		if before.name == rs.name {
			return false
		}
		if n.Long && before.whole > 0 && before.setting.Meets(n) {
			return true
		}
	}
	return false
}

// A place is where jobs run.
type place struct {
	setting rdmatest.Setting
	kernel  string // its name
	hash    string // of the tests' environment, without the tests and the programs that they start
}

func (r *runner) place(setting rdmatest.Setting, kernel string) (place, error) {
	r.rigOnce.Do(func() { r.rig, r.rigErr = r.cache.files.rig() })
	if r.rigErr != nil {
		return place{}, r.rigErr
	}
	release, err := exec.Command("rig/kernel", kernel, setting.Arch).Output()
	if err != nil {
		return place{}, fmt.Errorf("rig/kernel %s: %w", kernel, err)
	}
	return place{setting, kernel, r.rig.hash(setting, filepath.Base(strings.TrimSpace(string(release))), settings())}, nil
}

// settings returns the environment variables that are passed to guests, except those with locations of
// files, and the compiler's flags: they change the binaries, whose hashes are in the keys.
func settings() []string {
	var list []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GOVERBS_BIN", "GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOTMPDIR", "GOENV", "GOBIN", "GOFLAGS":
		default:
			if strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "VM_") || name == "LANG" || name == "TZ" {
				list = append(list, v)
			}
		}
	}
	slices.Sort(list)
	return list
}

// due appends a job to jobs, without the tests that have passed with the present files. If
// no tests remain, due adds the job's line to the table instead.
func (r *runner) due(jobs []job, s suite, where place, j job) []job {
	j.Args = append([]string{"-test.v=test2json", "-test.timeout=0"}, amount(where.setting.Short, r.named)...)
	j.Total = len(j.Tests)
	began := time.Now()
	j.Tests = slices.DeleteFunc(j.Tests, func(test string) bool {
		_, ok := r.cache.passed(r.key(where, j, test))
		return ok
	})
	if len(j.Tests) == 0 {
		r.add(result{suite: s.name + ": " + j.Name, passed: j.Total, cached: j.Total, took: time.Since(began)})
		return jobs
	}
	return append(jobs, j)
}

// amount returns the settings of test binaries that limit how much tests repeat themselves. They use all
// parameters only if the suite is named.
func amount(short, named bool) []string {
	if short || !named {
		return []string{"-test.short"}
	}
	return nil
}

// key returns a test's key in the cache.
func (r *runner) key(where place, j job, test string) string {
	binary, _ := r.cache.files.hash(j.Binary)
	return hashOf(where.hash, binary, j.Args, test)
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

// boot runs jobs in one boot of a kernel, and returns the jobs that it didn't reach.
func (r *runner) boot(s suite, where place, jobs []job) []job {
	setting := where.setting
	file := filepath.Join(r.work, "plan-"+s.name)
	err := r.write(file, setting.Arch, jobs)
	if err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return nil
	}
	device := setting.Device
	if setting.Profile != "" {
		device += ":" + setting.Profile
	}
	args := []string{"-a", setting.Arch, "-k", where.kernel, "-d", device, "-n", fmt.Sprint(setting.Guests), "-t", fmt.Sprint(int(2 * silence / time.Second)),
		"-e", "GOVERBS_BIN=" + r.bin(setting.Arch), "-e", "GOVERBS_LONG=" + os.Getenv("GOVERBS_LONG"),
		"-e", rdmatest.ProfileVariable + "=" + setting.Profile, "-e", rdmatest.WholeVariable + "=1"}
	if setting.Log {
		args = append(args, "-l", "-e", "VM_LOG=1", "-o", filepath.Join(r.work, "log-"+s.name))
	}
	var within []string
	if setting.Peers {
		args = append(args, "-e", rdmatest.PeersVariable+"=1")
		within = []string{"rig/in-tree"}
	}
	args = append(append(append(args, "--"), within...), filepath.Join(r.built(setting.Arch), "runner"), "in-guest", file)

	g := guest{r: r, suite: s, guests: setting.Guests, jobs: jobs, outputs: make(map[string]*testOutput), ended: make(map[string][]jobEnd), bad: make(map[string]bool), passed: make(map[string][]timed)}
	began := time.Now()
	r.now(s, "booting")
	err = r.lines(exec.Command("rig/run", args...), g.line)
	if r.stopped() {
		return nil
	}
	done := len(g.ended)
	if err == nil && done == len(jobs) {
		if err := g.keep(where, began); err != nil {
			r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		}
		return nil
	}
	// The failure belongs to the running job or, if none is left, to the end of the run.
	res := result{suite: s.name, took: time.Since(began), why: fmt.Sprintf("rig/run: %v", err), again: r.again(s)}
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

// write writes the plan of a guest.
func (r *runner) write(file, arch string, jobs []job) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	p := plan{Jobs: slices.Clone(jobs)}
	for i, j := range p.Jobs {
		run := "^(" + strings.Join(j.Tests, "|") + ")$"
		if _, parts, ok := strings.Cut(r.options.run, "/"); ok {
			run += "/" + parts
		}
		p.Jobs[i].Args = append(slices.Clip(j.Args), "-test.run", run, fmt.Sprintf("-test.count=%d", max(r.count, 1)))
	}
	for _, dir := range []string{root, r.bin(arch)} {
		list, err := folders(dir)
		if err != nil {
			return err
		}
		p.Folders = append(p.Folders, list...)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// A guest reads the output of one guest or of two.
type guest struct {
	r       *runner
	suite   suite
	guests  int
	jobs    []job
	outputs map[string]*testOutput // by the prefix of a guest's lines
	begun   int
	ended   map[string][]jobEnd // by job, one for each guest that has ended it
	bad     map[string]bool     // jobs with a failure
	passed  map[string][]timed  // by job
	tail    []string
}

// keep records the passed tests of jobs that have passed as a whole in all guests. It is called only
// if the guests ended without an error, because any test may have caused a kernel's warning.
func (g *guest) keep(where place, began time.Time) error {
	for _, j := range g.jobs {
		ends := g.ended[j.Name]
		if g.bad[j.Name] || len(ends) != g.guests || slices.ContainsFunc(ends, func(e jobEnd) bool { return e.Opened == nil }) {
			continue
		}
		for _, test := range g.passed[j.Name] {
			var opened []string
			for _, e := range ends {
				opened = slices.Concat(opened, e.Opened[""], e.Opened[test.name])
			}
			if err := g.r.cache.keep(g.r.key(where, j, test.name), opened, began, test.took); err != nil {
				return err
			}
		}
	}
	return nil
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
		if name, ok := strings.CutPrefix(text, mark+"=== RUN   "); ok && !strings.Contains(name, "/") {
			g.r.now(g.suite, name)
		}
		return
	}
	var end jobEnd
	if err := json.Unmarshal([]byte(line), &end); err != nil {
		o.line(text)
		return
	}
	i := slices.IndexFunc(g.jobs, func(j job) bool { return j.Name == end.Name })
	if i < 0 {
		o.line(text)
		return
	}
	cached := g.jobs[i].Total - len(g.jobs[i].Tests)
	res := result{
		suite: g.suite.name + ": " + who + end.Name, passed: o.passed + cached, cached: cached, failed: o.failed,
		took: time.Duration(end.Seconds * float64(time.Second)), again: g.r.again(g.suite, o.failures...),
	}
	if len(o.failures) == 0 && end.Status != "" {
		res.why = end.Status
		o.flush()
	}
	res.said, res.failures = o.said, o.failures
	g.r.timed(res.suite, o.times)
	g.ended[end.Name] = append(g.ended[end.Name], end)
	g.bad[end.Name] = g.bad[end.Name] || !res.ok()
	g.passed[end.Name] = o.times
	g.r.add(res)
}
