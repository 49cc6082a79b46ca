package rdmatest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// folders maps programs that are not examples to their folders.
var folders = map[string]string{
	"ibv":      "cmd/ibv",
	"ibvtrace": "cmd/ibvtrace",
	"hostile":  "cmd/ibvtrace/testdata/hostile",
	"fakemlx5": "tests/fakemlx5",
	"play":     "tests/mlx5bytes/play",
	"fakeefa":  "tests/fakeefa",
	"efaplay":  "tests/efabytes/efaplay",
}

// Program returns the path of one of this repository's programs, in the folder $GOVERBS_BIN. If
// that is not set, Program builds it, which takes long in a guest.
func Program(t testing.TB, name string) string {
	t.Helper()
	if name == "nettest.test" { // from a module in the folder of the test's package
		return built(t, name, []string{"go", "test", "-C", "nettest", "-c"}, ".")
	}
	if strings.HasPrefix(name, "valkey-") { // from another project, built by a script beside the test's package
		return built(t, name, []string{"false"})
	}
	if name == "judges.test" { // the same, with parts in C++
		return built(t, name, []string{"judges/build"})
	}
	folder := folders[name]
	if folder == "" {
		folder = "examples/" + name
	}
	return built(t, name, []string{"go", "build"}, "github.com/goverbs/goverbs/"+folder)
}

// CProgram returns the path of a program that is compiled from a C source of the test's package
// (c/faults.c). In the folder $GOVERBS_BIN, its name is the package's and the source's
// (faults-faults). If that is not set, CProgram compiles it.
func CProgram(t testing.TB, source string) string {
	t.Helper()
	here := filepath.Base(Must(os.Getwd())(t))
	name := here + "-" + strings.TrimSuffix(filepath.Base(source), ".c")
	return built(t, name, []string{"gcc", "-O2", "-Wall"}, source, "-Wl,--as-needed", "-lmlx5", "-lefa", "-libverbs")
}

var (
	building sync.Mutex
	made     string // the folder for built programs, to be removed
)

// built returns the path of a program in the folder $GOVERBS_BIN. If that is not set, built
// builds the program the first time.
func built(t testing.TB, name string, compiler []string, sources ...string) string {
	t.Helper()
	if dir := os.Getenv("GOVERBS_BIN"); dir != "" {
		path := filepath.Join(dir, name)
		Must(os.Stat(path))(t)
		return path
	}
	building.Lock()
	defer building.Unlock()
	if made == "" {
		made = Must(os.MkdirTemp("", "goverbs"))(t)
		Check(t, os.Chmod(made, 0o755)) // other users run them too
	}
	path := filepath.Join(made, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	c := exec.Command(compiler[0], slices.Concat(compiler[1:], []string{"-o", path}, sources)...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		Check(t, fmt.Errorf("%q: %w\n%s", c.Args, err, out))
	}
	return path
}
