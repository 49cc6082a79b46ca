package docs

import (
	"go/types"
	"testing"
)

// TestHints: ib.Hint finds every hint of the public packages, because an error with a hint has the
// method Hint.
func TestHints(t *testing.T) {
	packages := make(source)
	found := 0
	for _, dir := range public {
		p, err := packages.Import(module + dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			typ, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || typ.IsAlias() {
				continue
			}
			hint, _, _ := types.LookupFieldOrMethod(typ.Type(), true, p, "hint")
			if _, ok := hint.(*types.Var); !ok {
				continue
			}
			found++
			method, _, _ := types.LookupFieldOrMethod(types.NewPointer(typ.Type()), true, p, "Hint")
			if f, ok := method.(*types.Func); !ok || f.Signature().String() != "func() string" {
				t.Errorf("%s.%s has a hint, and no method Hint", dir, name)
			}
		}
	}
	if found < 6 {
		t.Errorf("only %d errors have hints", found)
	}
}
