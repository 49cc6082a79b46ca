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

// Program returns the path of one of this repository's programs, in the folder $GOVERBS_BIN. If
// that is not set, Program builds it, which takes long in a guest.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("GOVERBS_BIN")
	if dir == "" {
		Check(t, goPrograms())
		dir = Must(builtIn())(t)
	}
	return existing(t, dir, name)
}

func existing(t testing.TB, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	Must(os.Stat(path))(t)
	return path
}

var (
	made    string // the folder for built programs, to be removed
	builtIn = sync.OnceValues(func() (dir string, err error) {
		if made, err = os.MkdirTemp("", "goverbs"); err == nil {
			err = os.Chmod(made, 0o755) // other users run them too
		}
		return made, err
	})
)

var goPrograms = sync.OnceValue(func() error {
	dir, err := builtIn()
	if err != nil {
		return err
	}
	const module = "github.com/goverbs/goverbs/"
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return err
	}
	nettest := filepath.Join(strings.TrimSpace(string(root)), "tests/device/rsocket/nettest")
	if err := build("go", "test", "-C", nettest, "-c", "-o", filepath.Join(dir, "nettest.test"), "."); err != nil {
		return err
	}
	return build("go", "build", "-o", dir, module+"cmd/...", module+"examples/...",
		module+"cmd/ibvtrace/testdata/hostile", module+"tests/fakemlx5", module+"tests/mlx5bytes/play", module+"tests/fakeefa", module+"tests/efabytes/efaplay")
})

func build(command ...string) error {
	c := exec.Command(command[0], command[1:]...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", command, err, out)
	}
	return nil
}

// CProgram returns the path of a program that is compiled from a C source of the test's package
// (c/faults.c). In the folder $GOVERBS_BIN, its name is the package's and the source's
// (faults-faults). If that is not set, CProgram compiles it.
func CProgram(t testing.TB, source string) string {
	t.Helper()
	here := filepath.Base(Must(os.Getwd())(t))
	name := here + "-" + strings.TrimSuffix(filepath.Base(source), ".c")
	dir := os.Getenv("GOVERBS_BIN")
	if dir == "" {
		dir = Must(builtIn())(t)
		compiling.Lock()
		defer compiling.Unlock()
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			Check(t, build("gcc", "-O2", "-Wall", "-o", path, source, "-Wl,--as-needed", "-lmlx5", "-lefa", "-libverbs"))
		}
	}
	return existing(t, dir, name)
}

var compiling sync.Mutex
