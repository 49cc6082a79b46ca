// Package docs has the tests of the documentation.
package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/goverbs/goverbs/"

// A row is a row of the tables of functions.md.
type row struct {
	line      int
	functions []string // C's names
	names     []string // Go's names, in any of the columns
	answer    string   // the second column without names, if it has none: "no"
	reason    string
}

var quoted = regexp.MustCompile("`([^`]*)`")

// rows returns the rows of the tables, by section of functions.md.
func rows(t *testing.T, text string) map[string][]row {
	t.Helper()
	sections := make(map[string][]row)
	section := ""
	for i, line := range strings.Split(text, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			t.Errorf("line %d has %d columns, not 3", i+1, len(cells))
			continue
		}
		r := row{line: i + 1, reason: strings.TrimSpace(cells[2])}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			r.functions = append(r.functions, m[1])
		}
		answers := quoted.FindAllStringSubmatch(cells[1], -1)
		for _, m := range answers {
			r.names = append(r.names, m[1])
		}
		if left := strings.Trim(quoted.ReplaceAllString(cells[1], ""), " ,"); len(answers) == 0 || left != "" {
			r.answer = left
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if strings.Contains(m[1], ".") {
				r.names = append(r.names, m[1])
			}
		}
		sections[section] = append(sections[section], r)
	}
	return sections
}

// TestFunctions: every function of C is in the section of its library, once, with a Go name or
// an answer.
func TestFunctions(t *testing.T) {
	list, err := os.ReadFile("c-functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("functions.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]string) // the section of each function
	library := ""
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			library = strings.Trim(line, "[]")
		default:
			missing[line] = library
		}
	}
	if len(missing) < 400 {
		t.Fatalf("c-functions.txt has only %d functions", len(missing))
	}
	seen := make(map[string]int)
	for section, rows := range rows(t, string(page)) {
		for _, r := range rows {
			for _, f := range r.functions {
				switch {
				case seen[f] != 0:
					t.Errorf("line %d: %s is in line %d, too", r.line, f, seen[f])
				case missing[f] == "":
					t.Errorf("line %d: %s is not in c-functions.txt", r.line, f)
				case missing[f] != section:
					t.Errorf("line %d: %s is of %s", r.line, f, missing[f])
				}
				seen[f] = r.line
				delete(missing, f)
			}
			switch {
			case r.answer == "":
			case r.answer == "no" && r.reason != "":
			case r.answer == "no":
				t.Errorf("line %d gives no reason", r.line)
			default:
				t.Errorf("line %d: %q is neither names of Go nor \"no\"", r.line, r.answer)
			}
		}
	}
	for _, f := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s of %s is missing", f, missing[f])
	}
}

// TestGoNames: the Go names on the page exist, as go doc writes them.
func TestGoNames(t *testing.T) {
	page, err := os.ReadFile("functions.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := make(source)
	for _, rows := range rows(t, string(page)) {
		for _, r := range rows {
			for _, name := range r.names {
				if err := exists(packages, name); err != nil {
					t.Errorf("line %d: %s: %v", r.line, name, err)
				}
			}
		}
	}
	if exists(packages, "verbs.QP.PostSend") != nil || exists(packages, "verbs.QPOptions.Cap") != nil {
		t.Error("names that exist are not found")
	}
	for _, name := range []string{"QP.PostSend", "verbs.QP.Nothing", "verbs.QP.sq", "verbs.Nothing", "verbs.nothing", "nothing.QP", "verbs.QP.PostSend.X"} {
		if exists(packages, name) == nil {
			t.Errorf("%s exists", name)
		}
	}
}

// exists returns an error unless name is one of package.Name, package.Type.Method and
// package.Type.Field.
func exists(packages source, name string) error {
	parts := strings.Split(name, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return errors.New("neither package.Name nor package.Type.Member")
	}
	p, err := packages.Import(module + parts[0])
	if err != nil {
		return fmt.Errorf("there is no package %s: %w", parts[0], err)
	}
	o := p.Scope().Lookup(parts[1])
	if o == nil || !o.Exported() {
		return fmt.Errorf("package %s has no %s", parts[0], parts[1])
	}
	if len(parts) == 2 {
		return nil
	}
	if _, ok := o.(*types.TypeName); !ok {
		return fmt.Errorf("%s.%s is not a type", parts[0], parts[1])
	}
	member, _, _ := types.LookupFieldOrMethod(o.Type(), true, p, parts[2])
	if member == nil || !member.Exported() {
		return fmt.Errorf("%s.%s has no method or field %s", parts[0], parts[1], parts[2])
	}
	return nil
}

// A source imports packages of the module from their sources, without the functions' bodies.
// Of all other packages, it imports only the path.
type source map[string]*types.Package

func (s source) Import(name string) (*types.Package, error) {
	if p := s[name]; p != nil {
		return p, nil
	}
	dir, ours := strings.CutPrefix(name, module)
	if !ours {
		p := types.NewPackage(name, path.Base(name))
		p.MarkComplete()
		return p, nil
	}
	in, err := build.ImportDir("../"+dir, 0)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range in.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(in.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	// The declarations of other packages are unknown, so errors about them are ignored.
	c := types.Config{IgnoreFuncBodies: true, Importer: s, Error: func(error) {}}
	s[name], _ = c.Check(name, set, files, nil)
	return s[name], nil
}
