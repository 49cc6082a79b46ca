package docs

import (
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public lists the packages for programs, which keep the promise of compatibility. All tests of
// this folder check them.
var public = []string{"efadv", "ib", "mlx5ctx", "mlx5dv", "monitor", "rdmacm", "rdmanl", "rsocket", "s3rdma", "sa", "umad", "valkeyrdma", "verbs", "verbstest", "xfer"}

// imports has the folders of the module that a package of the library may import, apart from
// its own folder. Packages that it reaches through internal packages count as imported.
var imports = map[string]string{
	"uapi":       "",
	"ib":         "uapi",
	"ioctl":      "uapi",
	"provider":   "ioctl uapi",
	"rdmanl":     "ib uapi",
	"umad":       "ib uapi",
	"sa":         "ib uapi umad",
	"monitor":    "ib rdmanl uapi umad",
	"verbs":      "ib ioctl provider rdmanl uapi",
	"mlx5dv":     "ib ioctl provider rdmanl uapi verbs",
	"efadv":      "ib ioctl provider rdmanl uapi verbs",
	"verbstest":  "ib ioctl uapi verbs",
	"rdmacm":     "ib uapi verbs",
	"rsocket":    "ib rdmacm verbs",
	"valkeyrdma": "ib rdmacm verbs",
	"xfer":       "ib rdmacm rsocket verbs",
	"mlx5ctx":    "ib uapi",
	"s3rdma":     "ib verbs",

	"cmd/ibvtrace": "ib ioctl rdmanl uapi",
}

// A graph has the packages of the module. Their paths are relative to the module.
type graph map[string]*node

type node struct {
	command bool
	imports []string // without those of the tests
	tests   []string // imports of the tests
}

// packages reads the imports of all files, whatever their build constraints.
func packages(t *testing.T) graph {
	t.Helper()
	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Dir}} {{.Name}}", "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	g := make(graph)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		n := &node{command: f[2] == "main"}
		g[strings.TrimPrefix(f[0], module)] = n
		files, err := filepath.Glob(filepath.Join(f[1], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range parsed.Imports {
				path, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				path, ours := strings.CutPrefix(path, module)
				switch {
				case !ours:
				case strings.HasSuffix(file, "_test.go"):
					n.tests = append(n.tests, path)
				default:
					n.imports = append(n.imports, path)
				}
			}
		}
	}
	return g
}

// in reports whether the package is in the folder.
func in(folder, path string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// folderOf returns the key of imports for the package, or "".
func folderOf(path string) string {
	for folder := range imports {
		if in(folder, path) {
			return folder
		}
	}
	return ""
}

// reach adds the packages that the package imports, even through internal packages.
func (g graph) reach(path string, reached map[string]bool) {
	n := g[path]
	if n == nil {
		return
	}
	for _, i := range n.imports {
		if !reached[i] {
			reached[i] = true
			if in("internal", i) {
				g.reach(i, reached)
			}
		}
	}
}

// violations returns the imports that break a rule, one a line.
func (g graph) violations() []string {
	var all []string
	refuse := func(path, imported string) { all = append(all, path+" imports "+imported) }
	for _, path := range slices.Sorted(maps.Keys(g)) {
		n := g[path]
		library := !in("cmd", path) && !in("tests", path) && !in("examples", path)
		for _, i := range slices.Concat(n.imports, n.tests) {
			switch {
			case library && (in("cmd", i) || in("tests", i) || in("examples", i)):
				refuse(path, i)
			case in("examples", path) && (in("cmd", i) || in("tests", i) || in("internal", i)):
				refuse(path, i)
			case in("cmd", path) && in("tests", i):
				refuse(path, i)
			}
		}
		folder := folderOf(path)
		if folder == "" {
			continue
		}
		reached := make(map[string]bool)
		g.reach(path, reached)
		for _, i := range slices.Sorted(maps.Keys(reached)) {
			if top, _, _ := strings.Cut(i, "/"); !in(folder, i) && !in("internal", i) && !slices.Contains(strings.Fields(imports[folder]), top) {
				refuse(path, i)
			}
		}
	}
	return all
}

// TestImports: imports point one way, as CONTRIBUTING.md says.
func TestImports(t *testing.T) {
	g := packages(t)
	for _, v := range g.violations() {
		t.Error(v)
	}
	if len(g) < 60 || len(g["verbs"].imports) < 10 || len(g["rsocket"].tests) < 3 {
		t.Errorf("only %d packages, with too few imports", len(g))
	}
	broken := graph{
		"verbs":             {imports: []string{"provider/rxe", "internal/helper"}},
		"internal/helper":   {imports: []string{"rdmacm"}, tests: []string{"tests/rig"}},
		"provider/rxe":      {imports: []string{"ioctl", "provider"}},
		"uapi":              {imports: []string{"ioctl"}},
		"rsocket":           {imports: []string{"rdmacm"}, tests: []string{"verbstest", "cmd/ibv/internal/x"}},
		"cmd/ibvtrace":      {imports: []string{"cmd/ibvtrace/internal/x", "verbs"}},
		"cmd/ibv":           {imports: []string{"rsocket", "internal/helper", "tests/rig"}},
		"examples/first":    {imports: []string{"verbs", "internal/helper"}},
		"tests/device/some": {imports: []string{"cmd/ibv", "internal/helper", "verbs"}},
	}
	want := []string{
		"cmd/ibv imports tests/rig", "cmd/ibvtrace imports verbs", "examples/first imports internal/helper", "internal/helper imports tests/rig",
		"rsocket imports cmd/ibv/internal/x", "uapi imports ioctl", "verbs imports rdmacm",
	}
	if got := broken.violations(); !slices.Equal(got, want) {
		t.Errorf("the rules refuse %q, want %q", got, want)
	}
}

// TestPublic: a package that other modules can import is either public, or a package for
// drivers. Public packages have a rule for their imports.
func TestPublic(t *testing.T) {
	for path, n := range packages(t) {
		drivers := in("ioctl", path) || in("provider", path) || in("uapi", path)
		if !n.command && !strings.Contains("/"+path+"/", "/internal/") && !in("tests", path) && !in("examples", path) && path != "docs" &&
			drivers == slices.Contains(public, path) {
			t.Errorf("package %s is neither public nor for drivers, or both", path)
		}
	}
	for _, path := range public {
		if _, ok := imports[path]; !ok {
			t.Errorf("there is no rule for the imports of %s", path)
		}
	}
	golden, err := filepath.Glob("api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range golden {
		if name := strings.TrimSuffix(filepath.Base(file), ".txt"); !slices.Contains(public, name) {
			t.Errorf("%s is of no public package", file)
		}
	}
}
