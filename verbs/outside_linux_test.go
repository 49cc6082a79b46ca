package verbs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// A program drives a device with a provider that is part of another module:
// testdata/outside. It is built as that module's users would build it, except that it can
// open a file that is not a device.
func TestProviderFromOutside(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(root, "verbs/testdata/outside")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(here)); err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	mod := read("go.mod")
	write("go.mod", fmt.Appendf(nil, "module example.com/outside\n\n%s\n\nrequire (\n\tgithub.com/goverbs/goverbs v0.0.0\n\t%s // indirect\n)\n\nreplace github.com/goverbs/goverbs => %s\n",
		regexp.MustCompile(`(?m)^go .*$`).Find(mod), regexp.MustCompile(`golang.org/x/sys v\S+`).Find(mod), root))
	write("go.sum", read("go.sum"))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "verbs/open_fake.go"): filepath.Join(here, "open.go.txt")}})
	if err != nil {
		t.Fatal(err)
	}
	write("overlay.json", overlay)

	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("go", "build", "-overlay", "overlay.json", "-o", "outside", ".")
	const want = "opened device 42\n3 posted, 3 done: 7 8 9 of QP 17\n"
	if got := run("./outside"); got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
}
