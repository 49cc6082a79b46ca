package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiff: a trace does not differ from itself, and from another as the lines say.
func TestDiff(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	said := func() string {
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	server, client := traces("rc_pingpong")[0], traces("rc_pingpong")[1]
	if err := diff([]string{server, server, "-v", "-o", out}); err != nil || said() != "" {
		t.Errorf("a trace and itself: %v\n%s", err, said())
	}
	if err := diff([]string{"-e", "modify_qp,create_qp", "-o", out, server, client}); err != nil {
		t.Errorf("both sides set up their queue pairs in the same way: %v\n%s", err, said())
	}
	if err := diff([]string{"-e", "control", "-o", out, server, traces("rping")[0]}); !errors.Is(err, errDiffer) {
		t.Fatalf("two programs: %v", err)
	}
	for _, want := range []string{"--- " + server + "\n+++ ", "\n@@ thread 1 of process 1, line ", "\n-[1 ibv_rc_pingpong] ", "\n+[1 rping] "} {
		if !strings.Contains(said(), want) {
			t.Errorf("no %q in:\n%s", want, said())
		}
	}
	if err := diff([]string{server}); err == nil || !strings.Contains(err.Error(), "1 files given, want 2") {
		t.Error(err)
	}
}

// TestNoTime: lines without times are the same for runs at other times.
func TestNoTime(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if err := report([]string{"--no-time", "-e", "create_qp", "-o", out, traces("rping")[0]}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if diff := cmp.Diff("[1", line[:2]); diff != "" || strings.Contains(line, "µs") {
			t.Errorf("%q", line)
		}
	}
}
