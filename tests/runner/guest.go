//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// A plan is a guest's work.
type plan struct {
	Jobs    []job
	Folders []string // folders whose files are recorded when they are opened
}

// A job is one test binary's run in a guest.
type job struct {
	Name   string
	Dir    string
	Binary string
	Args   []string
	Env    []string // in addition to the guest's
	Tests  []string // the tests that run
	Total  int      // the number of the suite's tests in this binary, with those that need not run
}

// silence is how long a test binary may print nothing before it counts as hung. A test
// that makes progress prints far more often, even on a busy machine.
const silence = 10 * time.Minute

// The prefixes of the lines that report how a job went.
const (
	jobBegins = mark + "@begin "
	jobEnds   = mark + "@end "
)

// A jobEnd is the result of a job.
type jobEnd struct {
	Name    string
	Status  string // "" if it exited with 0
	Seconds float64
	Opened  map[string][]string // by test, the files that were opened; nil if that isn't known
}

// inGuest runs the jobs that a file lists, one after the other, and reports the result
// of each. It fails only if it cannot run them.
func inGuest(file string) int {
	text, err := os.ReadFile(file)
	var p plan
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	var o *opened
	if err == nil {
		o, err = watch(p.Folders)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	for _, j := range p.Jobs {
		fmt.Println(jobBegins + j.Name)
		began := time.Now()
		end := jobEnd{Name: j.Name}
		o.since()
		r := record{opened: o, byTest: make(map[string][]string)}
		if err := j.run(&r); err != nil {
			end.Status = err.Error()
		}
		end.Seconds, end.Opened = time.Since(began).Seconds(), r.end()
		line, err := json.Marshal(end)
		if err != nil {
			fmt.Fprintln(os.Stderr, "runner:", err)
			return 1
		}
		fmt.Println(jobEnds + string(line))
	}
	return 0
}

func (j *job) run(r *record) error {
	cmd := exec.Command(j.Binary, j.Args...)
	cmd.Dir = j.Dir
	cmd.Env = append(cmd.Environ(), j.Env...)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return err
	}
	in.Close()

	var hung atomic.Bool
	watch := time.AfterFunc(silence, func() {
		hung.Store(true)
		_ = cmd.Process.Signal(syscall.SIGQUIT) // prints where each goroutine is
		time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	})
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if line != "" {
				r.line(line)
				fmt.Print(line)
				if !hung.Load() {
					watch.Reset(silence)
				}
			}
			if err != nil {
				return
			}
		}
	}()
	err = cmd.Wait()
	watch.Stop()
	// A process that a test left behind may keep the pipe open.
	select {
	case <-copied:
	case <-time.After(5 * time.Second):
	}
	if hung.Load() {
		return fmt.Errorf("printed nothing for %v", silence)
	}
	return err
}
