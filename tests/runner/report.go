//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A result is a line of the table.
type result struct {
	suite          string
	passed, failed int
	took           time.Duration
	why            string // the reason, if it failed without a failed test
	again          string // the command that runs it again
	said           []string
}

func (r result) ok() bool { return r.failed == 0 && r.why == "" }

// A runner runs the chosen suites and counts the results. It has two lanes, which run
// at the same time: one for the suites in the rig, which leave a processor idle now and
// then, and one for the suites on the host. Within a lane, suites run one at a time.
type runner struct {
	options
	work    string // a folder for the compiled programs
	context context.Context
	cancel  context.CancelFunc
	started time.Time
	tests   tests

	mu      sync.Mutex
	lanes   [2]lane
	results []result
}

// A lane is a sequence of suites that run one at a time.
type lane struct {
	suites  []suite
	current int
	doing   string // what is running now
	since   time.Time
}

func newRunner(o options, suites []suite) (*runner, error) {
	work, err := os.MkdirTemp("", "goverbs-tests")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(work, 0o755); err != nil { // programs also run as other users
		return nil, err
	}
	r := &runner{options: o, work: work, started: time.Now()}
	for _, s := range suites {
		l := r.lane(s)
		l.suites = append(l.suites, s)
	}
	r.context, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

func (r *runner) lane(s suite) *lane {
	if s.rig {
		return &r.lanes[1]
	}
	return &r.lanes[0]
}

func (r *runner) runAll() {
	go r.tick()
	var wg sync.WaitGroup
	for i := range r.lanes {
		l := &r.lanes[i]
		wg.Go(func() {
			for i, s := range l.suites {
				if r.stopped() {
					return
				}
				r.begin(l, i)
				s.does(r, s)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			l.current, l.since, l.doing = len(l.suites), time.Now(), ""
		})
	}
	wg.Wait()
}

func (r *runner) stop()         { r.cancel() }
func (r *runner) stopped() bool { return r.context.Err() != nil }

func (r *runner) close() {
	r.cancel()
	os.RemoveAll(r.work)
}

// expected returns how long a suite takes on a quiet machine, according to the table.
func (r *runner) expected(s suite) time.Duration {
	if r.short {
		return max(s.quick, time.Second)
	}
	return max(s.whole, time.Second)
}

// left estimates how long a lane still has to run: the table's times of the remaining
// suites, scaled by how much longer than the table the finished ones took.
func (r *runner) left(l *lane) time.Duration {
	var before, after time.Duration
	for i, s := range l.suites {
		if i < l.current {
			before += r.expected(s)
		} else {
			after += r.expected(s)
		}
	}
	slower := 1.0
	if before >= 20*time.Second {
		slower = float64(l.since.Sub(r.started)) / float64(before)
	}
	return time.Duration(float64(after)*slower) - time.Since(l.since)
}

func (r *runner) begin(l *lane, i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := l.suites[i]
	l.current, l.since, l.doing = i, time.Now(), s.name
	fmt.Printf("== %s: %s\n", s.name, s.what)
}

// now records what a suite is doing.
func (r *runner) now(s suite, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lane(s).doing = s.name + ": " + what
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
			var left time.Duration
			for i := range r.lanes {
				l := &r.lanes[i]
				if l.doing != "" {
					doing = append(doing, l.doing)
					left = max(left, r.left(l))
				}
			}
			fmt.Printf("   … %s; about %.0f min left\n", strings.Join(doing, ", "), max(left.Minutes(), 1))
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
	fmt.Printf("%s  %-36s %4d passed %3d failed %5.0f s  %s\n", word, res.suite, res.passed, res.failed, res.took.Seconds(), res.why)
}

// table prints the results and reports whether all passed.
func (r *runner) table() bool {
	fmt.Printf("\n%-42s %7s %7s %8s\n", "suite", "passed", "failed", "seconds")
	var bad []result
	passed, failed := 0, 0
	for _, res := range r.results {
		fmt.Printf("%-42s %7d %7d %8.0f  %s\n", res.suite, res.passed, res.failed, res.took.Seconds(), res.why)
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
	if r.stopped() {
		fmt.Println("\nstopped before the end")
		return false
	}
	if len(bad) > 0 {
		// Repeat the failures, which may be far up.
		fmt.Println("\nfailed, with the command that runs it again:")
		for _, res := range bad {
			fmt.Printf("\n%s %s\n  %s\n", res.suite, res.why, res.again)
			for _, l := range excerpt(res.said) {
				fmt.Println("      " + l)
			}
		}
	}
	fmt.Printf("\n%d passed, %d failed\n", passed, failed)
	return len(bad) == 0
}

// excerpt returns the beginning and the end of a failure's output.
func excerpt(lines []string) []string {
	const half = 12
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
	said           []string // by the tests that failed
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
			}
			return
		}
		if name, ok := strings.CutPrefix(marked, "--- FAIL: "); ok && !strings.Contains(name, "/") {
			o.failed++
			o.kept = append(o.kept, marked)
			o.failures = append(o.failures, strings.Fields(name)[0])
			o.flush()
			return
		}
	}
	if len(o.kept) < 5000 {
		o.kept = append(o.kept, marked)
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
