//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// testedBy lists, for the packages below a folder, the packages whose tests on the host find
// their mistakes. The tests of the mutant's own package always come first. The first matching
// entry counts.
var testedBy = []struct {
	folder string
	tests  []string
}{
	{"provider/mlx5", []string{"provider/mlx5", "tests/mlx5bytes"}},
	{"provider/efa", []string{"provider/efa", "tests/efabytes"}},
	{"provider/rxe", nil},
	{"provider/siw", nil},
	{"provider", []string{"provider/rxe", "provider/mlx5", "verbs"}},
	{"ioctl", []string{"verbs", "rdmacm", "provider/rxe", "internal/tracing/event", "cmd/ibvtrace/internal/input"}},
	{"verbs", []string{"rdmacm", "tests/mlx5bytes"}},
	{"rdmacm", nil},
	{"cmd/ibvtrace", []string{"cmd/ibvtrace"}},
}

// tests returns the folders of the tests for a mutant in this file.
func tests(file string) []string {
	own := filepath.ToSlash(filepath.Dir(file))
	all := []string{own}
	for _, t := range testedBy {
		if own == t.folder || strings.HasPrefix(own, t.folder+"/") {
			for _, folder := range t.tests {
				if folder != own {
					all = append(all, folder)
				}
			}
			break
		}
	}
	return all
}

// A runner runs tests with a mutant in place of the tree's code. It does not change the tree.
type runner struct {
	code   *code
	dir    string // for its files
	own    bool   // run the tests of the mutant's own package only
	skip   string // tests to leave out
	inRig  bool   // run the tests that need a device
	vm     string // the program that boots guests
	plain  build  // for guests, without a mutant
	shared string // the overlay with many mutants
	suites map[string]*suite
}

// A suite is the tests of a package, compiled with many mutants.
type suite struct {
	binary string // "" if there are no tests
	limit  time.Duration
}

// prepare writes the overlay of the mutants that are compiled together.
func (r *runner) prepare(mutants []mutant) (err error) {
	r.suites = make(map[string]*suite)
	r.shared, err = r.overlay("shared", r.code.together(mutants))
	return err
}

// overlay writes a file for the go command's -overlay, and the sources that it names.
func (r *runner) overlay(name string, files map[string][]byte) (string, error) {
	dir := filepath.Join(r.dir, name)
	replace := make(map[string]string)
	for original, source := range files {
		mutated := filepath.Join(dir, original)
		if err := os.MkdirAll(filepath.Dir(mutated), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(mutated, source, 0o644); err != nil {
			return "", err
		}
		absolute, err := filepath.Abs(original)
		if err != nil {
			return "", err
		}
		replace[absolute] = mutated
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name = filepath.Join(r.dir, name+".json")
	return name, os.WriteFile(name, text, 0o644)
}

// alone writes the overlay of one mutant.
func (r *runner) alone(m mutant) (string, error) {
	return r.overlay("alone", map[string][]byte{m.File: r.code.apply(m.edit)})
}

// host runs the tests that need no device until one fails.
func (r *runner) host(ctx context.Context, m *mutant) error {
	start := time.Now()
	defer func() { m.Seconds = time.Since(start).Round(time.Second / 10).Seconds() }()
	folders := tests(m.File)
	if r.own {
		folders = folders[:1]
	}
	overlay := r.shared
	if m.number == 0 {
		var err error
		if overlay, err = r.alone(*m); err != nil {
			return err
		}
	}
	m.Outcome = survived
	for _, folder := range folders {
		s, err := r.suite(ctx, folder)
		if err != nil {
			return err
		}
		binary := s.binary
		if m.number == 0 && binary != "" {
			binary = filepath.Join(r.dir, "alone.test")
			if output, err := compile(ctx, folder, overlay, binary); err != nil {
				m.Outcome, m.By = broken, output
				return ctx.Err()
			}
		}
		if binary == "" {
			continue
		}
		output, err := r.runTests(ctx, folder, binary, overlay, m.number, s.limit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if m.Outcome, m.By = judge(output, err); m.Outcome != survived {
			if m.By == "" {
				m.By = folder
			}
			return nil
		}
	}
	return nil
}

// suite compiles the tests of a package and runs them without a mutant. They must pass. With
// a mutant, they may take several times as long.
func (r *runner) suite(ctx context.Context, folder string) (*suite, error) {
	if s := r.suites[folder]; s != nil {
		return s, nil
	}
	s := &suite{binary: filepath.Join(r.dir, strings.ReplaceAll(folder, "/", "-")+".test")}
	if output, err := compile(ctx, folder, r.shared, s.binary); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", folder, err, output)
	}
	if _, err := os.Stat(s.binary); err != nil {
		s.binary = ""
	} else {
		start := time.Now()
		if output, err := r.runTests(ctx, folder, s.binary, r.shared, 0, 0); err != nil {
			return nil, fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", folder, err, output)
		}
		s.limit = limit(time.Since(start))
	}
	r.suites[folder] = s
	return s, nil
}

// compile compiles the tests of a package. Without tests there is no file afterwards.
func compile(ctx context.Context, folder, overlay, binary string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+folder)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// runTests runs compiled tests until one fails. A limit of 0 is none. The go commands that
// the tests run use the mutants, too.
func (r *runner) runTests(ctx context.Context, folder, binary, overlay string, number int, limit time.Duration) (string, error) {
	args := []string{binary, "-test.failfast", "-test.paniconexit0", "-test.timeout", limit.String()}
	if r.skip != "" {
		args = append(args, "-test.skip", r.skip)
	}
	if os.Getuid() == 0 {
		// A mutant may signal processes that are not its own, and leave some behind.
		args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--"}, args...)
	}
	return runIn(ctx, folder, args, withOverlay(overlay), number)
}

// runIn runs a command in a folder, with a mutant.
func runIn(ctx context.Context, folder string, args, env []string, number int) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = folder
	cmd.Env = append(env, fmt.Sprintf("%s=%d", variable, number))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func withOverlay(name string) []string {
	return append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+name))
}

// limit returns how long tests may take with a mutant, given their time without one.
func limit(took time.Duration) time.Duration { return 15*time.Second + 4*took }

// judge returns the outcome for the mutant from the tests' output and exit status, and the
// test that killed it.
func judge(output string, err error) (outcome, string) {
	if err == nil {
		return survived, ""
	}
	by := ""
	if match := failedTest.FindStringSubmatch(output); match != nil {
		by = match[1]
	}
	if strings.Contains(output, "panic: test timed out") {
		if match := runningTest.FindStringSubmatch(output); match != nil && by == "" {
			by = match[1]
		}
		return hung, by
	}
	return killed, by
}

var (
	failedTest  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	runningTest = regexp.MustCompile(`(?m)^\s*running tests:\n\s+(\S+)`)
)
