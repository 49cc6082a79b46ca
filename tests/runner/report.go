//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// A result is a line of the table.
type result struct {
	suite          string
	passed, failed int
	took           time.Duration
	why            string // it failed without a test's failing
	again          string // the command that runs it again
}

func (r result) ok() bool { return r.failed == 0 && r.why == "" }

// A runner runs the suites that were chosen, one after the other, and keeps count.
type runner struct {
	options
	suites  []suite
	work    string // a folder for what is compiled
	context context.Context
	cancel  context.CancelFunc
	current int
	started time.Time

	mu      sync.Mutex
	results []result
	doing   string // what runs now
	since   time.Time
}

func newRunner(o options, suites []suite) (*runner, error) {
	work, err := os.MkdirTemp("", "goverbs-tests")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(work, 0o755); err != nil { // other users run programs too
		return nil, err
	}
	r := &runner{options: o, suites: suites, work: work, started: time.Now()}
	r.context, r.cancel = context.WithCancel(context.Background())
	go r.tick()
	return r, nil
}

func (r *runner) stop()         { r.cancel() }
func (r *runner) stopped() bool { return r.context.Err() != nil }

func (r *runner) close() {
	r.cancel()
	os.RemoveAll(r.work)
}

// expected is how long a suite takes by the table, on a quiet machine.
func (r *runner) expected(s suite) time.Duration {
	if r.short {
		return max(s.quick, time.Second)
	}
	return max(s.whole, time.Second)
}

// left estimates the time that is left: what the table says of the suites that are
// still to run, times how much longer those took that did.
func (r *runner) left() time.Duration {
	var before, after time.Duration
	for i, s := range r.suites {
		if i < r.current {
			before += r.expected(s)
		} else {
			after += r.expected(s)
		}
	}
	slower := 1.0
	if before >= 20*time.Second {
		slower = float64(r.since.Sub(r.started)) / float64(before)
	}
	return time.Duration(float64(after)*slower) - time.Since(r.since)
}

func (r *runner) begin(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.since, r.doing = i, time.Now(), r.suites[i].name
	fmt.Printf("\n== %s: %s (%d of %d%s)\n", r.suites[i].name, r.suites[i].what, i+1, len(r.suites), r.leftWords())
}

func (r *runner) leftWords() string {
	left := r.left()
	if left < 30*time.Second {
		return ""
	}
	return fmt.Sprintf(", about %d min left", int(left.Round(time.Minute).Minutes())+1)
}

// now notes what is being done.
func (r *runner) now(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing = what
}

// tick says once a minute what is being done.
func (r *runner) tick() {
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		select {
		case <-r.context.Done():
			return
		case <-t.C:
			r.mu.Lock()
			fmt.Printf("   … %s%s\n", r.doing, r.leftWords())
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

// table prints the results and tells whether all passed.
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
		fmt.Println("\nended before its time")
		return false
	}
	if len(bad) > 0 {
		fmt.Println("\nfailed, and how to run it again:")
		for _, res := range bad {
			fmt.Printf("  %-36s %s\n", res.suite, res.again)
		}
	}
	fmt.Printf("\n%d passed, %d failed\n", passed, failed)
	return len(bad) == 0
}

// testOutput reads what test binaries print with -test.v=test2json: it counts the
// tests and keeps what those print that fail.
type testOutput struct {
	verbose        bool
	passed, failed int
	current        string // the test that runs
	kept           []string
	failures       []string // top-level tests
}

// line takes one line. Lines of the testing package begin with a mark.
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

// flush prints what was kept.
func (o *testOutput) flush() {
	if !o.verbose {
		for _, l := range o.kept {
			fmt.Println("    " + l)
		}
	}
	o.kept = o.kept[:0]
}

const mark = "\x16"
