package ibvtrace

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

var _ = rdmatest.Test(TestSandboxed, rdmatest.LongOn("mlx5"))

// TestSandboxed traces a program that uses libibverbs and installs a seccomp filter. The
// filter kills it for system calls that it doesn't make itself. It must end as it does
// untraced, and its trace must be that of the program without a filter.
func TestSandboxed(t *testing.T) {
	dir := t.TempDir()
	program, file := rdmatest.CProgram(t, "c/sandboxed.c"), filepath.Join(dir, "trace")
	run := func(prefix []string, when, action string) {
		t.Helper()
		p := rdmatest.Start(t, append(prefix, program, device, when, action)...)
		if p.Wait().ExitCode() != 7 || p.Said() != "done\n" {
			t.Fatal(p)
		}
	}
	types := func(objects []event.Object) string {
		s := ""
		for _, o := range objects {
			s += " " + o.Type
		}
		return s
	}
	said := func() []string {
		var out []string
		for _, e := range rdmatest.ReadTrace(t, file) {
			if e.Kind == event.Control || e.Kind == event.Open || e.Kind == event.Close || e.Kind == event.Exit {
				out = append(out, fmt.Sprintf("%s %v %d %s, made%s, ended%s", e.Verb, e.Returned, e.Ret, e.Errno, types(e.Created), types(e.Destroyed)))
			}
		}
		return out
	}
	for _, option := range []string{"--data=false", "--data"} {
		run(stopped(t, file, option), "never", "kill")
		want := said()
		if all := strings.Join(want, "\n"); strings.Count(all, "ibv_create_qp") != 3 || !strings.Contains(all, "exited") {
			t.Errorf("%s: without a filter:\n%s", option, all)
		}
		for _, when := range []string{"before", "between", "after"} {
			for _, action := range []string{"kill", "errno"} {
				if testing.Short() && (when == "after" || (when == "before") != (option == "--data")) {
					continue
				}
				t.Run(strings.Join([]string{option, when, action}, " "), func(t *testing.T) {
					run(nil, when, action)
					run(stopped(t, file, option), when, action)
					if diff := cmp.Diff(want, said()); diff != "" {
						t.Errorf("trace (-without a filter +with one):\n%s", diff)
					}
				})
			}
		}
	}
}
