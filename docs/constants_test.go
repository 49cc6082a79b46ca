package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestConstants: go doc lists the constants of a type with the type. It does so only if they
// are declared with it: as X T = T(1), not as X = T(1).
func TestConstants(t *testing.T) {
	types, constants := 0, 0
	for _, dir := range public {
		sources, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range sources {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		p, err := doc.NewFromFiles(set, files, module+dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range p.Types {
			if len(typ.Consts) > 0 {
				types++
			}
		}
		for _, group := range p.Consts {
			for _, s := range group.Decl.Specs {
				for i, v := range s.(*ast.ValueSpec).Values {
					constants++
					call, ok := v.(*ast.CallExpr)
					if !ok {
						continue
					}
					if of, ok := call.Fun.(*ast.Ident); ok && of.IsExported() {
						t.Errorf("%v: go doc doesn't list %s with its type: declare it as %s", set.Position(v.Pos()), s.(*ast.ValueSpec).Names[i], of)
					}
				}
			}
		}
	}
	if types < 40 || constants < 5 {
		t.Errorf("only %d types have constants, and %d constants no type", types, constants)
	}
}
