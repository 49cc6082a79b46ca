package main

import (
	"fmt"
	"go/format"
	"strings"
)

// layoutTest returns the tables for layout_test.go, which compares Go with C.
func (g *goABI) layoutTest() ([]byte, error) {
	b := &strings.Builder{}
	b.WriteString(generatedHeader + "import \"reflect\"\n\n")

	b.WriteString("var cTypes = []cType{\n")
	for _, s := range g.structs {
		fmt.Fprintf(b, "{reflect.TypeFor[%s](), Struct%s, %q, %q, []string{", s.name, s.name, s.parent, s.path)
		for _, f := range s.fields {
			if f.name != "_" {
				fmt.Fprintf(b, "%q, ", f.path)
			}
		}
		b.WriteString("}},\n")
	}
	for _, u := range g.unions {
		parent, path, _ := strings.Cut(u.path, ".")
		fmt.Fprintf(b, "{reflect.TypeFor[%s](), Struct%s, %q, %q, nil},\n", u.name, u.name, parent, path)
	}
	b.WriteString("}\n\nvar cViews = []cView{\n")
	for _, a := range g.accessors {
		parent, path, _ := strings.Cut(a.c, ".")
		recv, recvPath, _ := strings.Cut(a.cRecv, ".")
		if recv != parent {
			return nil, fmt.Errorf("%s is not in %s", a.c, a.cRecv)
		}
		fmt.Fprintf(b, "{reflect.TypeFor[*%s](), %q, %q, %q, %q},\n", a.recv, a.name, parent, recvPath, path)
	}
	b.WriteString("}\n\nvar cOffsets = []cOffset{\n")
	for _, x := range g.flex {
		fmt.Fprintf(b, "{%s, %q, %q},\n", x.name, x.owner.parent, x.path)
	}
	b.WriteString("}\n\nvar cConsts = []EnumValue{\n")
	for _, m := range g.c.Macros {
		fmt.Fprintf(b, "{%s, %q},\n", m.Name, m.Name)
	}
	for _, e := range g.c.Enums {
		for _, v := range e.Values {
			fmt.Fprintf(b, "{uint64(%s), %q},\n", v.Name, v.Name)
		}
	}
	b.WriteString("}\n")
	return format.Source([]byte(b.String()))
}
