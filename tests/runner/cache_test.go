//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func put(t *testing.T, path, text string, changed time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, changed, changed); err != nil {
		t.Fatal(err)
	}
}

// A test that has passed need not run again while the files that it opened are unchanged, wherever the folders
// are.
func TestCache(t *testing.T) {
	source, bin, store := t.TempDir(), t.TempDir(), t.TempDir()
	began := time.Now()
	before := began.Add(-time.Hour)
	program, data := filepath.Join(bin, "ibv"), filepath.Join(source, "testdata")
	put(t, program, "1", before)
	put(t, data, "2", before)
	fresh := func() *cache {
		return &cache{dir: store, roots: map[string]string{"source": source, "amd64": bin}}
	}
	passed := func() bool {
		e, ok := fresh().passed("key")
		if ok && (len(e.Opened) != 2 || e.Seconds != 2) {
			t.Errorf("%+v", e)
		}
		return ok
	}
	if passed() {
		t.Error("it has passed before it ran")
	}
	opened := []string{program, data, filepath.Join(source, "made in the guest"), "/usr/bin/elsewhere"}
	if err := fresh().keep("key", opened, began, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if !passed() {
		t.Error("it must run again though nothing has changed")
	}
	for _, file := range []string{program, data} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put(t, file, "another", before)
		if passed() {
			t.Errorf("it need not run although %s has changed", file)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if passed() {
			t.Errorf("it need not run although %s is gone", file)
		}
		put(t, file, string(text), before)
		if !passed() {
			t.Errorf("it must run although %s is as it was", file)
		}
	}
	moved := filepath.Join(t.TempDir(), "bin")
	if err := os.Rename(bin, moved); err != nil {
		t.Fatal(err)
	}
	bin = moved
	if !passed() {
		t.Error("it must run because a folder has moved")
	}
	if _, ok := fresh().passed("another key"); ok {
		t.Error("another test has passed")
	}
	off := fresh()
	off.dir = ""
	if _, ok := off.passed("key"); ok {
		t.Error("it has passed in a cache that is off")
	}
}

// A file that changed during the run doesn't count as the version that the tests read.
func TestCacheChanged(t *testing.T) {
	source := t.TempDir()
	c := cache{dir: t.TempDir(), roots: map[string]string{"source": source}}
	file := filepath.Join(source, "file")
	began := time.Now()
	put(t, file, "old", began.Add(-time.Minute))
	c.files.hash(file) // as for another test, before the run
	put(t, file, "new", began.Add(time.Minute))
	if err := c.keep("key", []string{file}, began, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.passed("key"); ok {
		t.Error("it was kept")
	}
}

// Entries that no run has read for long are removed.
func TestCacheUnused(t *testing.T) {
	c := cache{dir: t.TempDir()}
	put(t, filepath.Join(c.dir, "old"), "{}", time.Now().Add(-unused-time.Hour))
	put(t, filepath.Join(c.dir, "new"), "{}", time.Now().Add(-unused/2))
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.passed("old"); ok {
		t.Error("the old entry is there")
	}
	if _, ok := c.passed("new"); !ok {
		t.Error("the new entry is gone")
	}
}

// Everything that a test may depend on is in its key.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	binary, other := filepath.Join(dir, "a.test"), filepath.Join(dir, "b.test")
	put(t, binary, "1", time.Now())
	put(t, other, "2", time.Now())
	type parts struct {
		rig         rig
		setting     rdmatest.Setting
		release     string
		environment []string
		job         job
		test        string
	}
	usual := func() parts {
		return parts{
			rig: rig{Scripts: "s", Go: "g", Programs: "p", Adapters: map[string]string{"mlx5": "m", "efa": "e"}}, setting: rdmatest.Setting{Device: "mlx5-eth", Guests: 1},
			release: "6.1", environment: []string{"GODEBUG="}, job: job{Binary: binary, Args: []string{"-test.short"}}, test: "TestA",
		}
	}
	var r runner
	key := func(change func(*parts)) string {
		p := usual()
		change(&p)
		return r.key(place{hash: p.rig.hash(p.setting, p.release, p.environment)}, p.job, p.test)
	}
	keys := []string{key(func(*parts) {})}
	for name, change := range map[string]func(*parts){
		"the rig's scripts":        func(p *parts) { p.rig.Scripts = "" },
		"Go":                       func(p *parts) { p.rig.Go = "" },
		"Debian's programs":        func(p *parts) { p.rig.Programs = "" },
		"the adapter":              func(p *parts) { p.rig.Adapters["mlx5"] = "" },
		"the device":               func(p *parts) { p.setting.Device = "mlx5" },
		"the number of guests":     func(p *parts) { p.setting.Guests = 2 },
		"the newer peers":          func(p *parts) { p.setting.Peers = true },
		"the adapter's profile":    func(p *parts) { p.setting.Profile = "vf" },
		"the adapter's log":        func(p *parts) { p.setting.Log = true },
		"the architecture":         func(p *parts) { p.setting.Arch = "arm64" },
		"the kernel":               func(p *parts) { p.release = "6.12" },
		"the environment":          func(p *parts) { p.environment[0] += "x" },
		"the binary":               func(p *parts) { p.job.Binary = other },
		"the number of parameters": func(p *parts) { p.job.Args = nil },
		"the test":                 func(p *parts) { p.test = "TestB" },
	} {
		k := key(change)
		if slices.Contains(keys, k) {
			t.Errorf("another value of %s has the same key", name)
		}
		keys = append(keys, k)
	}
	if key(func(p *parts) { p.rig.Adapters["efa"] = "" }) != keys[0] {
		t.Error("an adapter that isn't there is in the key")
	}
	if key(func(p *parts) { p.setting.Short = true }) != keys[0] {
		t.Error("which other tests run is in the key")
	}
}

// The files that tests open are recorded: those of TestMain for all tests, and those on the boundary of two
// tests for both.
func TestOpened(t *testing.T) {
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main", "a", "b", "below/c", "never"} {
		put(t, filepath.Join(dir, name), "", time.Now())
	}
	list, err := folders(dir)
	if err != nil {
		t.Fatal(err)
	}
	o, err := watch(list)
	if err != nil {
		t.Fatal(err)
	}
	o.since()
	open := func(name string) {
		t.Helper()
		if _, err := os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := record{opened: o, byTest: make(map[string][]string)}
	open("main")
	r.line(mark + "=== RUN   TestA\n")
	open("a")
	r.line("=== RUN   TestPrintedByTheTest\n")
	r.line(mark + "=== RUN   TestA/part\n")
	open("below/c")
	r.line(mark + "=== RUN   TestB\n")
	open("b")
	r.line(mark + "--- PASS: TestB (0.00s)\n")
	got := r.end()
	r.line(mark + "=== RUN   TestLate\n")
	for test, names := range map[string][]string{"": {"main"}, "TestA": {"a", "below/c", "main"}, "TestB": {"a", "b", "below/c"}, "TestLate": nil} {
		var want []string
		for _, name := range names {
			want = append(want, filepath.Join(dir, name))
		}
		if !slices.Equal(got[test], want) {
			t.Errorf("%q opened %q, want %q", test, got[test], want)
		}
	}
	o.lost = true
	if r := (record{opened: o, byTest: make(map[string][]string)}); r.end() != nil {
		t.Error("what was opened is known although some of it was lost")
	}
}

// sources returns the files of a package of the rig and of the packages that it imports, and no others.
func TestSources(t *testing.T) {
	t.Chdir("../..")
	list, err := sources("./efa")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"rig/go.mod": true, "rig/efa/main.go": true, "rig/internal/bus/bus.go": true, "rig/connectx/main.go": false} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
		if got := slices.Contains(list, name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
	if slices.ContainsFunc(list, filepath.IsAbs) {
		t.Errorf("%q", list)
	}
}

// A run of all suites repeats long tests on a second device only if the code differs there.
func TestRepeats(t *testing.T) {
	suite := func(name string) rigSuite {
		return rigSuites[slices.IndexFunc(rigSuites, func(s rigSuite) bool { return s.name == name })]
	}
	for _, c := range []struct {
		name  string
		suite string
		needs rdmatest.Needs
		want  bool
	}{
		{"every test, first", "rxe", rdmatest.Needs{}, false},
		{"every test, second", "mlx5", rdmatest.Needs{}, false},
		{"a long test, first", "rxe", rdmatest.Needs{Long: true}, false},
		{"a long test, second", "mlx5", rdmatest.Needs{Long: true}, true},
		{"a long test, only there", "mlx5", rdmatest.Needs{Long: true, Devices: []string{"mlx5", "mlx5-eth"}}, false},
		{"a long test, third", "mlx5-eth", rdmatest.Needs{Long: true, Devices: []string{"mlx5", "mlx5-eth"}}, true},
		{"long there", "mlx5-eth", rdmatest.Needs{LongOn: []string{"mlx5-eth"}}, true},
		{"long there, other adapters", "mlx5-eth-mixed", rdmatest.Needs{LongOn: []string{"mlx5-eth"}}, false},
		{"long elsewhere", "mlx5-eth", rdmatest.Needs{LongOn: []string{"mlx5"}}, false},
		{"siw", "siw", rdmatest.Needs{SIW: true, Long: true}, true},
	} {
		if got := suite(c.suite).repeats(c.needs); got != c.want {
			t.Errorf("%s, on %s: %t", c.name, c.suite, got)
		}
	}
}

// Two runs at once compile into different folders. A folder that another user may write to is not used.
func TestWorkplace(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a, err := newWorkplace("/source")
	if err != nil {
		t.Fatal(err)
	}
	b, err := newWorkplace("/source")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(a.dir, "program"), "", time.Now())
	if a.dir == b.dir {
		t.Error("two runs at once have the same folder")
	}
	a.close()
	b.close()
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		t.Errorf("the second run's folder: %v", err)
	}
	c, err := newWorkplace("/source")
	if err != nil {
		t.Fatal(err)
	}
	if c.dir != a.dir {
		t.Error("the next run has another folder than the first")
	}
	if err := removeOlder(c.dir, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "program")); !os.IsNotExist(err) {
		t.Errorf("a program that is no more: %v", err)
	}
	c.close()
	if err := os.Chmod(a.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	d, err := newWorkplace("/source")
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if d.dir == a.dir {
		t.Error("it uses a folder that every user may write to")
	}
}

// The versions of Debian's programs are found, those of libraries for one architecture, too.
func TestDebian(t *testing.T) {
	got := debian.FindAllString("gcc-12\t12.2\nlibibverbs1:amd64\t44.0\nlibc6:amd64\t2.36\nperftest\t4.5\n", -1)
	if want := []string{"gcc-12\t12.2", "libibverbs1:amd64\t44.0", "perftest\t4.5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The rig's scripts are those that it needs to boot a guest, without pages of documentation.
func TestScripts(t *testing.T) {
	t.Chdir("../..")
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"rig/run": true, "rig/init": true, "rig/kernels": true, "rig/README.md": false, "rig/go.mod": false, "rig/efa": false} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
		if got := slices.Contains(list, name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

// A changed page of documentation runs no test again.
func TestTrees(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"run", "README.md"} {
		put(t, filepath.Join(dir, name), "", time.Now())
	}
	if list, err := trees(dir); err != nil || len(list) != 1 || filepath.Base(list[0]) != "run" {
		t.Errorf("%v, %v", list, err)
	}
}
