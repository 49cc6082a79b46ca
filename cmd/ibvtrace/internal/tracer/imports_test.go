package tracer

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestImports: no mechanism imports another, and no shared package imports a mechanism.
func TestImports(t *testing.T) {
	mechanisms := []string{"stops", "attach", "probes", "goprograms", "kernel"}
	for _, p := range append([]string{"calls", "tracee", "seccomp", "ptrace", "bpf"}, mechanisms...) {
		files, err := filepath.Glob(filepath.Join("..", p, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("package %s has no files: %v", p, err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				path, _ := strconv.Unquote(i.Path.Value)
				name, ok := strings.CutPrefix(path, "github.com/goverbs/goverbs/cmd/ibvtrace/internal/")
				if ok && (name == "tracer" || slices.Contains(mechanisms, name)) {
					t.Errorf("%s imports %s", file, name)
				}
			}
		}
	}
}
