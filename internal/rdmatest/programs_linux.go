package rdmatest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Program returns the path of one of this repository's programs: in the folder that
// $GOVERBS_BIN names, else built, which takes its time in a guest.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("GOVERBS_BIN")
	if dir == "" {
		var err error
		if dir, err = builtPrograms(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

var builtIn string // the folder of those that were built

var builtPrograms = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "goverbs")
	if err != nil {
		return "", err
	}
	builtIn = dir
	if err := os.Chmod(dir, 0o755); err != nil { // other users run them too
		return "", err
	}
	const module = "github.com/goverbs/goverbs/"
	build := exec.Command("go", "build", "-o", dir, module+"cmd/...", module+"examples/...",
		module+"cmd/ibvtrace/testdata/hostile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%q: %w\n%s", build.Args, err, out)
	}
	return dir, nil
})

// CProgram returns the path of a program made from a C source of the test's package
// (c/faults.c): in the folder that $GOVERBS_BIN names, as the package's name and
// the source's (faults-faults), else compiled.
func CProgram(t testing.TB, source string) string {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(source), ".c")
	if dir := os.Getenv("GOVERBS_BIN"); dir != "" {
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Base(here)+"-"+name)
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("gcc", "-O2", "-Wall", "-o", path, source, "-Wl,--as-needed", "-lmlx5", "-libverbs").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, out)
	}
	return path
}
