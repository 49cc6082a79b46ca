package docs

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The programs in these pages are the first Examples of packages, whose output the tests in
// tests/device compare on a device.
var programs = map[string]struct{ example, output string }{
	"README.md":      {"rdmacm/first_example_test.go", "hello, verbs\n"},
	"docs/from-c.md": {"verbs/example_test.go", "RECV: \"hello, verbs\"\n"},
}

var programAndOutput = regexp.MustCompile("(?s)```go\n(package main\n.*?)```\n.*?```\n(.*?)```\n")

// TestProgramsAreExamples compares the pages with the Examples.
func TestProgramsAreExamples(t *testing.T) {
	for page, p := range programs {
		m := programAndOutput.FindStringSubmatch(read(t, page))
		if m == nil {
			t.Errorf("%s has no program followed by its output", page)
			continue
		}
		text := strings.Replace(read(t, p.example), "package "+filepath.Dir(p.example)+"_test\n", "package main\n", 1)
		text = strings.Replace(text, "\nfunc Example() {\n", "\nfunc main() {\n", 1)
		if diff := cmp.Diff(text, m[1]); diff != "" {
			t.Errorf("%s differs from %s (-example +page):\n%s", page, p.example, diff)
		}
		if m[2] != p.output {
			t.Errorf("%s shows the output %q, want %q", page, m[2], p.output)
		}
	}
}

// TestProgramInAModule builds the program of README.md in a module of its own. The binary is static.
func TestProgramInAModule(t *testing.T) {
	library, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	mod := strings.Replace(read(t, "go.mod"), "module github.com/goverbs/goverbs\n", "module example.org/first\n", 1)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": programAndOutput.FindStringSubmatch(read(t, "README.md"))[1],
		"go.mod":  mod + "\nrequire github.com/goverbs/goverbs v0.0.0\n\nreplace github.com/goverbs/goverbs => " + library + "\n",
		"go.sum":  read(t, "go.sum"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "first")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := elf.Open(filepath.Join(dir, "first"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a %v: it is not static", p.Type)
		}
	}
}
