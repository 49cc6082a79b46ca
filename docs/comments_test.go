package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestComments: each exported name of the packages for programs has a comment. The comment of
// a group of constants or variables is enough for each of them.
func TestComments(t *testing.T) {
	names := 0
	for _, dir := range public {
		files := token.NewFileSet()
		sources, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range sources {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.FileExports(f)
			for _, d := range f.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && !token.IsExported(receiver(f.Recv.List[0].Type)) {
					continue
				}
				undocumented(d, func(n *ast.Ident, documented bool) {
					if names++; !documented {
						t.Errorf("%v: %s has no comment", files.Position(n.Pos()), n.Name)
					}
				})
			}
		}
	}
	if names < 1000 {
		t.Errorf("only %d names were looked at", names)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
type T struct {
	A int
	B int // it is
}
// They are.
const ( C = 1 )
const ( D = 1; E = 2 // it is
)
func F() {}
func (T) String() string { return "" }
`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, d := range f.Decls {
		undocumented(d, func(n *ast.Ident, documented bool) {
			if !documented {
				missing = append(missing, n.Name)
			}
		})
	}
	if got := strings.Join(missing, " "); got != "T A D F" {
		t.Errorf("without comments are %s", got)
	}
}

// receiver returns the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// selfEvident are methods that do what their name says in every package.
var selfEvident = map[string]bool{"String": true, "Error": true, "Unwrap": true, "Is": true, "Timeout": true}

// undocumented calls see with the names that a declaration declares.
func undocumented(d ast.Decl, see func(n *ast.Ident, documented bool)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		see(d.Name, d.Doc != nil || d.Recv != nil && selfEvident[d.Name.Name])
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					see(n, d.Doc != nil || s.Doc != nil || s.Comment != nil)
				}
			case *ast.TypeSpec:
				see(s.Name, d.Doc != nil || s.Doc != nil)
				st, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range st.Fields.List {
					for _, n := range field.Names {
						see(n, field.Doc != nil || field.Comment != nil)
					}
				}
			}
		}
	}
}
