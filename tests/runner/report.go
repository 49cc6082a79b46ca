//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A result is a line of the table.
type result struct {
	suite          string
	passed, failed int
	cached         int // how many of passed did not run again
	took           time.Duration
	failures       []string // the top-level tests that failed
	why            string   // the reason, if it failed without a failed test
	again          string   // the command that runs it again
	said           []string
}

// remark returns the end of a line of the table.
func (r result) remark() string {
	switch {
	case r.why != "":
		return r.why
	case r.cached == 0:
		return ""
	case r.cached == r.passed && r.failed == 0:
		return "(cached)"
	}
	return fmt.Sprintf("(%d cached)", r.cached)
}

func (r result) ok() bool { return r.failed == 0 && r.why == "" }

// summary names the suite's failures.
func (r result) summary() string {
	what, _, _ := strings.Cut(cmp.Or(strings.Join(r.failures, " "), r.why), "\n")
	return r.suite + ": " + what
}

// A runner runs the chosen suites and counts the results. It runs two suites at a time, one
// on the host and one in the rig as long as there are both, because a guest sometimes leaves a
// processor idle. Two guests at a time need four processors: on two, each takes three times as
// long.
type runner struct {
	options
	processors int
	work       string // a folder that is removed at the end
	programs   workplace
	context    context.Context
	cancel     context.CancelFunc
	started    time.Time
	tests      tests
	cache      cache
	rigOnce    sync.Once
	rig        *rig
	rigErr     error

	mu      sync.Mutex
	waiting []suite
	running []running
	done    map[bool]time.Duration // the table's times of the suites that have ended, in the rig (true) and on the host
	results []result
	slow    []timed // the tests that took longest
}

// A running suite has begun and not ended.
type running struct {
	suite
	doing    string // the current step
	since    time.Time
	expected time.Duration // how long it takes on a quiet machine
}

// A timed is a top-level test's name and how long it took.
type timed struct {
	name string
	took time.Duration
}

func newRunner(o options, suites []suite) (*runner, error) {
	work, err := os.MkdirTemp("", "goverbs-tests")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(work, 0o755); err != nil { // programs also run as other users
		return nil, err
	}
	r := &runner{options: o, processors: runtime.NumCPU(), work: work, started: time.Now(), waiting: suites, done: make(map[bool]time.Duration), tests: tests{arch: cmp.Or(o.arch, "amd64")}}
	r.context, r.cancel = context.WithCancel(context.Background())
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if r.programs, err = newWorkplace(root); err != nil {
		return nil, err
	}
	r.cache.roots = map[string]string{"source": root, "amd64": r.bin("amd64"), "arm64": r.bin("arm64")}
	if o.count == 0 && !o.verbose && !strings.Contains(o.run, "/") {
		r.cache.dir = cacheFolder("tests")
	}
	return r, r.cache.open()
}

func (r *runner) runAll() {
	go r.tick()
	var wg sync.WaitGroup
	for _, rig := range []bool{true, false} {
		wg.Go(func() {
			for {
				s, ok := r.next(rig)
				if !ok {
					return
				}
				s.does(r, s)
				r.end(s)
			}
		})
	}
	wg.Wait()
}

// next begins the next suite of the rig or of the host. If none is left, it begins a suite of the other kind,
// if there are enough processors.
func (r *runner) next(rig bool) (suite, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped() || len(r.waiting) == 0 {
		return suite{}, false
	}
	i := slices.IndexFunc(r.waiting, func(s suite) bool { return s.rig == rig })
	if i < 0 {
		if !rig && r.processors < 4 {
			return suite{}, false
		}
		i = 0
	}
	s := r.waiting[i]
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.running = append(r.running, running{suite: s, doing: s.name, since: time.Now(), expected: r.expected(s)})
	fmt.Printf("== %s: %s\n", s.name, s.what)
	return s, true
}

func (r *runner) end(s suite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(x running) bool {
		if x.name == s.name {
			r.done[x.rig] += x.expected
		}
		return x.name == s.name
	})
}

// expect records that a suite runs only this fraction of its tests.
func (r *runner) expect(s suite, part float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.running {
		if x := &r.running[i]; x.name == s.name {
			x.expected = time.Duration(part * float64(r.expected(s)))
		}
	}
}

func (r *runner) stop()         { r.cancel() }
func (r *runner) stopped() bool { return r.context.Err() != nil }

func (r *runner) close() {
	r.cancel()
	os.RemoveAll(r.work)
	r.programs.close()
}

// expected returns how long a suite takes on a quiet machine, according to the table.
func (r *runner) expected(s suite) time.Duration {
	if r.short {
		return max(s.quick, time.Second)
	}
	return max(s.whole, time.Second)
}

// left estimates the remaining time. The suites of the rig and of the host run side by side. For each kind, the
// estimate is the table's time of the remaining suites, at the rate of the finished ones.
func (r *runner) left() time.Duration {
	return max(r.leftOf(true), r.leftOf(false))
}

func (r *runner) leftOf(rig bool) time.Duration {
	done, rest := r.done[rig], time.Duration(0)
	for _, s := range r.waiting {
		if s.rig == rig {
			rest += r.expected(s)
		}
	}
	for _, x := range r.running {
		if x.rig == rig {
			begun := min(time.Since(x.since), x.expected)
			done += begun
			rest += x.expected - begun
		}
	}
	rate := 1.0
	if done >= 20*time.Second {
		rate = float64(done) / float64(time.Since(r.started))
	}
	return time.Duration(float64(rest) / rate)
}

// now records the current step of a suite.
func (r *runner) now(s suite, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.running {
		if x := &r.running[i]; x.name == s.name {
			x.doing = s.name + ": " + what
		}
	}
}

// tick prints once a minute what is running, and how long the rest will take.
func (r *runner) tick() {
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		select {
		case <-r.context.Done():
			return
		case <-t.C:
			r.mu.Lock()
			var doing []string
			for _, x := range r.running {
				doing = append(doing, x.doing)
			}
			fmt.Printf("   … %s; about %.0f min left\n", strings.Join(doing, ", "), max(r.left().Minutes(), 1))
			r.mu.Unlock()
		}
	}
}

// add adds a line to the table, and prints it.
func (r *runner) add(res result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
	word := "ok  "
	if !res.ok() {
		word = "FAIL"
	}
	fmt.Printf("%s  %-36s %4d passed %3d failed %5.0f s  %s\n", word, res.suite, res.passed, res.failed, res.took.Seconds(), res.remark())
}

// timed records how long tests took, and keeps the slowest.
func (r *runner) timed(where string, all []timed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range all {
		r.slow = append(r.slow, timed{where + " " + t.name, t.took})
	}
	slices.SortStableFunc(r.slow, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	r.slow = r.slow[:min(len(r.slow), 15)]
}

// table prints the results, and returns the failures.
func (r *runner) table() (bad []result) {
	fmt.Printf("\n%-42s %7s %7s %8s\n", "suite", "passed", "failed", "seconds")
	passed, failed := 0, 0
	for _, res := range r.results {
		fmt.Printf("%-42s %7d %7d %8.0f  %s\n", res.suite, res.passed, res.failed, res.took.Seconds(), res.remark())
		passed += res.passed
		failed += res.failed
		if !res.ok() {
			bad = append(bad, res)
			if res.failed == 0 {
				failed++
			}
		}
	}
	fmt.Printf("%-42s %7s %7s %8.0f\n", "", "", "", time.Since(r.started).Seconds())
	if len(r.slow) > 0 {
		fmt.Println("\nthe slowest tests, in seconds:")
		for _, t := range r.slow {
			fmt.Printf("%6.0f  %s\n", t.took.Seconds(), t.name)
		}
	}
	if r.stopped() {
		fmt.Println("\nstopped before the end")
		return bad
	}
	if len(bad) > 0 {
		// Repeat the failures, which may be far up. The output ends with their names,
		// because some log viewers show only the end.
		fmt.Println("\nfailed:")
		for _, res := range bad {
			fmt.Printf("\n%s %s\n", res.suite, res.why)
			for _, l := range excerpt(res.said) {
				fmt.Println("      " + l)
			}
		}
		fmt.Println("\nfailed, with the command that runs it again:")
		for _, res := range bad {
			fmt.Printf("  %s\n    %s\n", res.summary(), res.again)
		}
	}
	fmt.Printf("\n%d passed, %d failed\n", passed, failed)
	return bad
}

// excerpt returns the beginning and the end of a failure's output.
func excerpt(lines []string) []string {
	const half = 20
	if len(lines) <= 2*half {
		return lines
	}
	return slices.Concat(lines[:half], []string{"…"}, lines[len(lines)-half:])
}

// testOutput reads the output of test binaries that run with -test.v=test2json. It
// counts the tests, and keeps the output of those that fail.
type testOutput struct {
	verbose        bool
	passed, failed int
	current        string // the running test
	kept           []string
	failures       []string // top-level tests
	said           []string // output of the tests that failed
	times          []timed  // of top-level tests
}

// line processes one line. Lines of the testing package begin with a mark.
func (o *testOutput) line(text string) {
	marked, isMarked := strings.CutPrefix(text, mark)
	if o.verbose {
		fmt.Println(marked)
	}
	if isMarked {
		if name, ok := strings.CutPrefix(marked, "=== RUN   "); ok {
			o.current = name
			if !strings.Contains(name, "/") {
				o.kept = o.kept[:0]
			}
			return
		}
		if strings.HasPrefix(marked, "=== ") {
			return
		}
		if name, ok := strings.CutPrefix(marked, "--- PASS: "); ok {
			if !strings.Contains(name, "/") {
				o.passed++
				o.kept = o.kept[:0]
				o.ended(name)
			}
			return
		}
		if name, ok := strings.CutPrefix(marked, "--- FAIL: "); ok && !strings.Contains(name, "/") {
			o.failed++
			o.kept = append(o.kept, marked)
			o.failures = append(o.failures, strings.Fields(name)[0])
			o.ended(name)
			o.flush()
			return
		}
	}
	if len(o.kept) < 5000 {
		o.kept = append(o.kept, marked)
	}
}

// ended records a test's time, from a line with its name and, in brackets, its time.
func (o *testOutput) ended(text string) {
	name, rest, _ := strings.Cut(text, " (")
	if took, err := time.ParseDuration(strings.TrimSuffix(rest, ")")); err == nil {
		o.times = append(o.times, timed{name, took})
	}
}

// flush prints the output that was kept.
func (o *testOutput) flush() {
	o.said = append(o.said, o.kept...)
	if !o.verbose {
		for _, l := range o.kept {
			fmt.Println("    " + l)
		}
	}
	o.kept = o.kept[:0]
}

const mark = "\x16"
