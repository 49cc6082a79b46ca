package docs

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the API's golden files")

// TestAPI compares the packages' API with api/PACKAGE.txt, so that no change goes unnoticed.
// After an intended change, run: go test ./docs -run TestAPI -update
func TestAPI(t *testing.T) {
	for _, dir := range public {
		cmd := exec.Command("go", "doc", "-all", "./"+dir)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go doc %s: %v", dir, err)
		}
		got := withoutProse(string(out))
		golden := filepath.Join("api", dir+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
			t.Errorf("the API of %s has changed (-%s +now); if that is meant: go test ./docs -run TestAPI -update\n%s", dir, golden, d)
		}
	}
}

// withoutProse returns the declarations in the output of go doc, without comments.
func withoutProse(doc string) string {
	var b strings.Builder
	started := false
	for line := range strings.Lines(doc) {
		// go doc indents prose by four spaces, and declarations by tabs.
		started = started || line == "CONSTANTS\n" || line == "VARIABLES\n" || line == "FUNCTIONS\n" || line == "TYPES\n"
		code, _, _ := strings.Cut(line, "//")
		code = strings.TrimRight(code, " \t\n")
		if started && code != "" && !strings.HasPrefix(code, "    ") {
			b.WriteString(code + "\n")
		}
	}
	return b.String()
}
