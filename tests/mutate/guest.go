//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A guest runs the tests of a plan, in a virtual machine.
type guest struct {
	plan
	run func(b build, folder string, limit time.Duration, more ...string) (outcome, string)
	say func(report)
}

// inGuest runs the plan in a file, and returns the exit status.
func inGuest(file string) int {
	text, err := os.ReadFile(file)
	g := guest{say: func(r report) {
		line, err := json.Marshal(r)
		if err != nil {
			panic(err) // all values can be encoded
		}
		fmt.Printf("%s%s\n", reportMark, line)
	}}
	if err == nil {
		err = json.Unmarshal(text, &g.plan)
	}
	if err == nil {
		// Processes that a test leaves behind become this program's children.
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		return 1
	}
	g.run = g.compiled
	g.all()
	return 0
}

// all runs the mutants in turn, until a mutant spoils the guest.
func (g *guest) all() {
	if g.Limits == nil {
		g.Limits = make(map[string]time.Duration)
	}
	// The tests must pass without a mutant, in a new guest.
	for _, p := range g.Runs {
		for _, folder := range p.Folders {
			if g.Limits[folder] > 0 {
				continue
			}
			start := time.Now()
			if outcome, by := g.run(g.Plain, folder, 0); outcome != survived {
				g.say(report{Error: fmt.Sprintf("the tests of tests/device/%s fail without a mutant: %s", folder, by)})
				return
			}
			g.Limits[folder] = limit(time.Since(start))
			g.say(report{Folder: folder, Limit: g.Limits[folder]})
		}
	}
	for _, p := range g.Runs {
		g.say(report{})
		start := time.Now()
		r := report{Outcome: survived}
		for _, folder := range p.Folders {
			if r.Outcome, r.By, r.Spoiled = g.try(p.Build, folder); r.Outcome != survived {
				break
			}
		}
		r.Seconds = time.Since(start).Round(time.Second / 10).Seconds()
		g.say(r)
		if r.Spoiled {
			return
		}
	}
}

// try runs the tests in a folder with a mutant. A failed test must fail again, and pass
// without the mutant. Otherwise the test is unsteady, or the guest is spoiled. Without a
// name, try runs all tests. It skips none, because package rdmatest skips tests itself.
func (g *guest) try(b build, folder string) (became outcome, by string, spoiled bool) {
	limit := g.Limits[folder]
	for range tries {
		became, by = g.run(b, folder, limit)
		if became == survived {
			return survived, "", false
		}
		var only []string
		if test, _, _ := strings.Cut(by, "/"); test != "" {
			only = []string{"-test.run", "^" + test + "$"}
		} else {
			by = "tests/device/" + folder
		}
		if again, _ := g.run(g.Plain, folder, limit, only...); again != survived {
			return became, by + ", then without the mutant too", true
		}
		if again, _ := g.run(b, folder, limit, only...); again != survived {
			return became, by, false
		}
		fmt.Printf("unsteady: %s\n", by)
	}
	return survived, "", false
}

// tries is how often tests run if one of them is unsteady.
const tries = 3

// compiled runs the compiled tests in a folder until one fails.
func (g *guest) compiled(b build, folder string, limit time.Duration, more ...string) (outcome, string) {
	fmt.Println(b.Number, folder, strings.Join(more, " ")) // the host waits for lines
	ctx := context.Background()
	if limit > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, limit+time.Minute) // for tests that don't end by themselves
		defer stop()
	}
	args := append([]string{filepath.Join(b.Dir, "amd64", folder+".test"), "-test.short", "-test.failfast", "-test.timeout", limit.String()}, more...)
	output, err := runIn(ctx, filepath.Join("tests/device", folder), args, append(os.Environ(), "GOVERBS_BIN="+filepath.Join(b.Dir, "amd64/bin")), b.Number)
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // a process that was left behind holds the output open
	}
	killChildren()
	became, by := judge(output, err)
	if became == survived {
		return survived, ""
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	fmt.Println(strings.Join(lines[max(0, len(lines)-15):], "\n"))
	return became, by
}

// killChildren kills processes that tests have left behind.
func killChildren() {
	for {
		names, _ := filepath.Glob("/proc/self/task/*/children")
		var children []string
		for _, name := range names {
			text, _ := os.ReadFile(name)
			children = append(children, strings.Fields(string(text))...)
		}
		if len(children) == 0 {
			return
		}
		for _, child := range children {
			if pid, err := strconv.Atoi(child); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
				_, _ = unix.Wait4(pid, nil, 0, nil)
			}
		}
	}
}
