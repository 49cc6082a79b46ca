//go:build amd64

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// compiled returns a C program of testdata. It is compiled the first time.
func compiled(t *testing.T, name string, flags ...string) string {
	t.Helper()
	program := filepath.Join(bin.dir, name+strings.Join(flags, ""))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	args := append([]string{"-O2", "-Wno-parentheses", "-Wno-unused-result", "-o", program, "testdata/c/" + name + ".c", "-lpthread"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}

// TestSandboxed traces programs whose own seccomp filters allow only the programs' own system
// calls. The programs must behave as without a tracer, and all their verbs must be shown.
func TestSandboxed(t *testing.T) {
	needDevice(t)
	program := compiled(t, "sandboxed")
	const verbs = 20
	for _, when := range []string{"before", "between", "after"} {
		for _, how := range []string{"kill", "errno", "trap", "notify", "none"} {
			for _, option := range []string{"", "--data", "-p"} {
				t.Run(strings.Join([]string{when, how, option}, " "), func(t *testing.T) {
					args := []string{program, when, how, fmt.Sprint(verbs)}
					tracer := onDevice(t, append([]string{option, "--"}, args...)...)
					switch option {
					case "":
						tracer = onDevice(t, append([]string{"--"}, args...)...)
					case "-p":
						tracer = nil
					}
					checkSandboxed(t, tracer, args, verbs)
				})
			}
		}
	}
}

// checkSandboxed runs a program under a tracer, or attaches one to it if tracer is nil.
func checkSandboxed(t *testing.T, tracer *traced, args []string, verbs uint64) {
	program := tracer
	if program == nil {
		program = &traced{Cmd: exec.CommandContext(t.Context(), args[0], args[1:]...), t: t}
	}
	pid, next := program.start()
	if tracer == nil {
		tracer = onDevice(t, "-p", fmt.Sprint(pid))
		if err := tracer.Start(); err != nil {
			t.Fatal(err)
		}
		tracer.awaitTraced(pid)
		tracer.await("the thread resumed its sleep", func() bool {
			const goesOn = "219 " // restart_syscall
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			return slices.ContainsFunc(tasks, func(task string) bool {
				status, _ := os.ReadFile(task + "/status")
				call, _ := os.ReadFile(task + "/syscall")
				return strings.Contains(string(status), "State:\tS") && strings.HasPrefix(string(call), goesOn)
			})
		})
	}
	fmt.Fprint(program.stdin, "x")
	if got := next(); got != "trapped 0, asked 0" {
		t.Errorf("the program says %q", got)
	}
	var exit *exec.ExitError
	if err := program.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("%v, want exit status 7\n%s", err, program.out.String())
	}
	if tracer != program {
		if err := tracer.Wait(); err != nil {
			t.Errorf("ibvtrace: %v\n%s", err, tracer.out.String())
		}
	}
	var got, want []uint64
	for _, e := range readEvents(t, tracer.file) {
		if e.Kind == event.Control {
			got = append(got, event.Find(e.Args, "pd").Num)
		}
	}
	for i := range verbs + 1 {
		want = append(want, i+1)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verbs (-want +got):\n%s", diff)
	}
}
