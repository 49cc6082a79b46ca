// Package readme tests the program in README.md. It is the Example of package verbs, it
// builds as a module of its own into a static binary, and on a device it prints what
// README.md shows.
package readme

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnRXE) }

const root = "../../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text := rdmatest.Must(os.ReadFile(file))(t)
	return string(text)
}

// program returns the program in README.md and the output that README.md shows.
func program(t *testing.T) (source, output string) {
	t.Helper()
	m := regexp.MustCompile("(?s)```go\n(package main\n.*?)```\n.*?```\n(.*?)```\n").FindStringSubmatch(read(t, filepath.Join(root, "README.md")))
	if m == nil {
		t.Fatal("README.md has no program followed by its output")
	}
	return m[1], m[2]
}

var _ = rdmatest.Test(TestSameAsExample, rdmatest.OnHost)

func TestSameAsExample(t *testing.T) {
	source, _ := program(t)
	example := read(t, filepath.Join(root, "verbs", "example_test.go"))
	example = strings.Replace(example, "package verbs_test\n", "package main\n", 1)
	example = strings.Replace(example, "\nfunc Example() {\n", "\nfunc main() {\n", 1)
	if diff := cmp.Diff(example, source); diff != "" {
		t.Errorf("README.md differs from verbs/example_test.go (-example +README):\n%s", diff)
	}
}

var _ = rdmatest.Test(TestProgram, rdmatest.Builds, rdmatest.Long)

func TestProgram(t *testing.T) {
	source, output := program(t)
	binary := build(t, map[string]string{"main.go": source})
	file := rdmatest.Must(elf.Open(binary))(t)
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a %v: it is not static", p.Type)
		}
	}

	got := rdmatest.Start(t, binary).Succeeds(t)
	if got != output {
		t.Errorf("the program prints %q, README.md shows %q", got, output)
	}
}

// build builds a program from its files, as a module of its own.
func build(t *testing.T, files map[string]string) (binary string) {
	t.Helper()
	library := rdmatest.Must(filepath.Abs(root))(t)
	dir := t.TempDir()
	mod := read(t, filepath.Join(root, "go.mod"))
	mod = strings.Replace(mod, "module github.com/goverbs/goverbs\n", "module example.org/first\n", 1)
	files["go.mod"] = mod + "\nrequire github.com/goverbs/goverbs v0.0.0\n\nreplace github.com/goverbs/goverbs => " + library + "\n"
	files["go.sum"] = read(t, filepath.Join(root, "go.sum"))
	for name, text := range files {
		rdmatest.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	binary = filepath.Join(dir, "first")
	build := exec.Command("go", "build", "-o", binary)
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}
