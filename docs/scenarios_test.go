package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScenarios: every test of rdma-core is in scenarios.md, once, and each of our tests that
// is listed beside it exists.
func TestScenarios(t *testing.T) {
	missing := make(map[string]map[string]bool) // by module
	for _, line := range lines(t, "c-tests.txt") {
		module, tests, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		missing[module] = make(map[string]bool)
		for _, name := range strings.Fields(tests) {
			missing[module][name] = true
		}
	}
	ours := testNames(t)
	if len(missing) < 40 || len(ours) < 500 {
		t.Fatalf("only %d modules of rdma-core and %d tests are known", len(missing), len(ours))
	}
	for i, line := range lines(t, "scenarios.md") {
		if !strings.HasPrefix(line, "| `test_") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			t.Errorf("line %d has %d columns, not 3", i+1, len(cells))
			continue
		}
		names := quoted.FindAllStringSubmatch(cells[0], -1)
		module := missing[names[0][1]]
		switch {
		case len(module) == 0:
			t.Errorf("line %d: rdma-core has no more tests in %s", i+1, names[0][1])
		case len(names) == 1:
			clear(module)
		}
		for _, n := range names[1:] {
			if !module[n[1]] {
				t.Errorf("line %d: rdma-core has no %s, or another line does", i+1, n[1])
			}
			delete(module, n[1])
		}
		answers := quoted.FindAllStringSubmatch(cells[1], -1)
		if none := strings.TrimSpace(cells[1]) == "no"; none != (len(answers) == 0) || none && strings.TrimSpace(cells[2]) == "" {
			t.Errorf("line %d has neither tests nor a reason", i+1)
		}
		for _, a := range answers {
			if !ours[a[1]] {
				t.Errorf("line %d: there is no %s", i+1, a[1])
			}
		}
	}
	for module, names := range missing {
		for name := range names {
			t.Errorf("%s of %s is missing", name, module)
		}
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// testNames returns the names of all tests.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
