package provider

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Wrong orders of loads and stores have no visible effect on amd64, and only by chance on
// arm64. So these tests examine the source of the providers that write to registers.

// functions returns the functions of a provider, without tests.
func functions(t *testing.T, dir string) (all []*ast.FuncDecl) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, f)
			}
		}
	}
	return all
}

// called returns the names of the functions that n calls, in the source's order, such as
// "mmio.Publish" and ".Ready".
func called(n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			name := "." + f.Sel.Name
			switch x := f.X.(type) {
			case *ast.Ident:
				if x.Name == "mmio" || x.Name == "memorder" {
					name = x.Name + name
				}
			case *ast.SelectorExpr:
				name = "." + x.Sel.Name + name
			}
			names = append(names, name)
		case *ast.Ident:
			names = append(names, f.Name)
		}
		return true
	})
	return names
}

// looks reports whether n reads an entry's valid bit.
func looks(n ast.Node) bool {
	names := called(n)
	return slices.Contains(names, ".Ready") || slices.Contains(names, ".ready") || slices.Contains(names, ".PlainSend")
}

// isLoadBarrier reports whether a statement is mmio.FromDevice(), or a call of advanceSeen, which has it for
// several entries; perhaps only where it has any effect, and where an earlier one isn't enough.
func isLoadBarrier(s ast.Stmt) bool {
	if x, ok := s.(*ast.IfStmt); ok {
		cond := x.Cond
		for and, ok := cond.(*ast.BinaryExpr); ok && and.Op == token.LAND; and, ok = cond.(*ast.BinaryExpr) {
			cond = and.X
		}
		sel, ok := cond.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "LoadsReorder" || len(x.Body.List) != 1 {
			return false
		}
		s = x.Body.List[0]
	}
	names := called(s)
	return len(names) > 0 && (names[0] == "mmio.FromDevice" || names[0] == ".advanceSeen")
}

// leaves reports whether a block ends with a jump.
func leaves(b *ast.BlockStmt) bool {
	switch b.List[len(b.List)-1].(type) {
	case *ast.BranchStmt, *ast.ReturnStmt:
		return true
	}
	return false
}

// TestLoadBarriers: between the check that an entry is valid and the reads of the entry there is
// a barrier.
func TestLoadBarriers(t *testing.T) {
	for dir, want := range map[string]int{"mlx5": 6, "efa": 3} {
		found := 0
		for _, f := range functions(t, dir) {
			check := func(s ast.Stmt) {
				if found++; s == nil || !isLoadBarrier(s) {
					t.Errorf("%s: %s looks whether an entry is valid, and reads it without mmio.FromDevice", dir, f.Name.Name)
				}
			}
			// The first check of a poll needs no barrier, because poll checks again before it
			// reads.
			firstLook := func(x *ast.IfStmt) bool {
				return f.Name.Name == "Poll" && len(x.Body.List) == 1 && leaves(x.Body)
			}
			if f.Name.Name == "advanceSeen" { // looks at several entries, and then has the barrier for all
				loop := slices.IndexFunc(f.Body.List, func(s ast.Stmt) bool { _, ok := s.(*ast.ForStmt); return ok })
				check(f.Body.List[loop+1])
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if loop, ok := n.(*ast.ForStmt); ok && loop.Cond != nil && looks(loop.Cond) {
					check(loop.Body.List[0])
				}
				block, ok := n.(*ast.BlockStmt)
				if !ok {
					return true
				}
				for i, s := range block.List {
					var next ast.Stmt
					if i+1 < len(block.List) {
						next = block.List[i+1]
					}
					switch s := s.(type) {
					case *ast.IfStmt:
						switch {
						case s.Init != nil && looks(s.Init) || looks(s.Cond):
							if firstLook(s) {
								break
							}
							if !leaves(s.Body) {
								next = s.Body.List[0]
							}
							check(next)
						}
					case *ast.AssignStmt: // e, ok := q.ready(r), and then if !ok
						if looks(s) {
							if x, ok := next.(*ast.IfStmt); ok && leaves(x.Body) && i+2 < len(block.List) {
								check(block.List[i+2])
							} else {
								check(nil)
							}
						}
					}
				}
				return true
			})
		}
		if found != want {
			t.Errorf("%s: %d places look whether an entry is valid, want %d", dir, found, want)
		}
	}
}

// TestStoreOrder: the record is written before a shared register, and the register with its lock
// held; a request is in the device's memory before its doorbell; and no store follows the store
// that publishes it.
func TestStoreOrder(t *testing.T) {
	publishes := []string{"mmio.Publish", "memorder.StoreRelease"}
	orders := map[string]map[string][]string{
		"mlx5": {"notify": {
			"mmio.DoorbellUncached", "mmio.BlueFlame", "mmio.Doorbell",
			"mmio.Publish", ".Lock.Lock", "mmio.CopyLocked", "mmio.RingLocked", ".Lock.Unlock",
		}},
		"efa": {"ringUp": {"mmio.CopyLocked", "memorder.StoreRelease", "mmio.CopyLocked", "mmio.Publish"}},
	}
	for dir, order := range orders {
		seen := 0
		for _, f := range functions(t, dir) {
			var got []string
			for _, name := range called(f.Body) {
				if strings.HasPrefix(name, "mmio.") || strings.HasPrefix(name, "memorder.") || strings.HasPrefix(name, ".Lock.") {
					got = append(got, name)
				}
			}
			want, ok := order[f.Name.Name]
			switch writes := slices.Contains(got, "mmio.CopyLocked") || slices.Contains(got, "mmio.RingLocked"); {
			case ok:
				if seen++; !slices.Equal(got, want) {
					t.Errorf("%s: %s has %q, want %q", dir, f.Name.Name, got, want)
				}
			case writes:
				t.Errorf("%s: %s writes to a register or the device's memory, in an order that this test doesn't know", dir, f.Name.Name)
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				block, ok := n.(*ast.BlockStmt)
				if !ok {
					return true
				}
				published := false
				for _, s := range block.List {
					if x, ok := s.(*ast.AssignStmt); ok && published {
						for _, to := range x.Lhs {
							if _, ok := to.(*ast.IndexExpr); ok {
								t.Errorf("%s: %s stores something after it has been published", dir, f.Name.Name)
							}
						}
					}
					if x, ok := s.(*ast.ExprStmt); ok {
						published = published || slices.ContainsFunc(called(x), func(name string) bool { return slices.Contains(publishes, name) })
					}
				}
				return true
			})
		}
		if seen != len(order) {
			t.Errorf("%s: %d functions of %d", dir, seen, len(order))
		}
	}
}

// published returns the name of the element in publish(recvWord(element), …), or "".
func published(s ast.Stmt) string {
	x, ok := s.(*ast.ExprStmt)
	if names := called(s); !ok || len(names) == 0 || names[0] != "publish" {
		return ""
	}
	word, ok := x.X.(*ast.CallExpr).Args[0].(*ast.CallExpr)
	if !ok || len(word.Args) != 1 {
		return ""
	}
	if element, ok := word.Args[0].(*ast.Ident); ok {
		return element.Name
	}
	return ""
}

// TestPublishesLast: siw writes all of an element before the kernel may take it.
func TestPublishesLast(t *testing.T) {
	found := 0
	for _, f := range functions(t, "siw") {
		ast.Inspect(f.Body, func(n ast.Node) bool {
			block, ok := n.(*ast.BlockStmt)
			if !ok {
				return true
			}
			element := ""
			for _, s := range block.List {
				if element != "" {
					ast.Inspect(s, func(n ast.Node) bool {
						if x, ok := n.(*ast.Ident); ok && x.Name == element {
							t.Errorf("%s uses %s after it was published", f.Name.Name, element)
						}
						return true
					})
				}
				if x := published(s); x != "" {
					element = x
					found++
				}
			}
			return true
		})
	}
	if found != 2 {
		t.Errorf("%d elements are published, want 2", found)
	}
}
