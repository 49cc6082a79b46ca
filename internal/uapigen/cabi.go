package main

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// cHeaders are the headers that are converted to Go completely. A C unit includes them in
// this order.
var cHeaders = []string{
	"rdma/rdma_user_ioctl_cmds.h",
	"rdma/ib_user_ioctl_cmds.h",
	"rdma/ib_user_verbs.h",
	"rdma/ib_user_ioctl_verbs.h",
	"rdma/rdma_user_rxe.h",
	"rdma/siw-abi.h",
	"rdma/efa-abi.h",
	"rdma/mlx5_user_ioctl_cmds.h",
	"rdma/mlx5_user_ioctl_verbs.h",
	"rdma/mlx5-abi.h",
	"rdma/ib_user_sa.h",
	"rdma/rdma_user_cm.h",
	"rdma/rdma_netlink.h",
	"rdma/ib_user_mad.h",
	"rdma/rdma_user_ioctl.h",
}

// macroPrefixes limit the macros of a header to those with a prefix: rdma_user_ioctl.h also has
// a driver's macros.
var macroPrefixes = map[string]string{"rdma/rdma_user_ioctl.h": "IB_USER_MAD_"}

// unaligned are structs that Go can't express, because their fields are not aligned. A newer
// struct replaces this one.
var unaligned = map[string]bool{"ib_user_mad_reg_req": true}

// beforeHeaders are included before cHeaders, because one of those uses them without including
// them.
var beforeHeaders = []string{"linux/netlink.h"}

type cKind int

const (
	cInt    cKind = iota
	cArray        // Elem, Len; Len 0: flexible
	cStruct       // Struct
)

type cType struct {
	Kind      cKind
	Size      int
	Signed    bool
	BigEndian bool
	Elem      *cType
	Len       int
	Struct    *cAggregate
}

func (t *cType) align() int {
	switch t.Kind {
	case cArray:
		return t.Elem.align()
	case cStruct:
		return t.Struct.align()
	}
	return t.Size
}

// flexible reports whether the type has no size: it is [] or [0], or a union of these.
func (t *cType) flexible() bool { return t.Size == 0 }

type cField struct {
	Name   string // "" for an anonymous struct or union
	Offset int
	Type   *cType
}

// cAggregate is a struct or a union.
type cAggregate struct {
	Tag    string // "" if anonymous
	Union  bool
	Size   int
	Fields []cField
	Header string
	Line   int
}

func (a *cAggregate) align() int {
	n := 1
	for _, f := range a.Fields {
		n = max(n, f.Type.align())
	}
	return n
}

// keyword returns C's keyword before the tag.
func (a *cAggregate) keyword() string {
	if a.Union {
		return "union"
	}
	return "struct"
}

type cConst struct {
	Name  string
	Value uint64
}

type cEnum struct {
	Tag    string // "" if anonymous
	Size   int
	Values []cConst
	Header string
	Line   int
}

type cMacro struct {
	cConst
	Header string
	Line   int
}

// cABI has the contents of the headers.
type cABI struct {
	Enums   []*cEnum
	Structs []*cAggregate // tagged structs, also of other headers if used
	Macros  []cMacro
}

func (abi *cABI) lookupStruct(tag string) *cAggregate {
	for _, s := range abi.Structs {
		if s.Tag == tag {
			return s
		}
	}
	return nil
}

var macroLine = regexp.MustCompile(`(?m)^#define[ \t]+([A-Z][A-Z0-9_]*)[ \t]+[^ \t\n"]`)

// readHeaders compiles a C unit that includes the headers. It reads the types from the
// unit's debug information, and the macros from its data.
func readHeaders(dir string) (*cABI, error) {
	include := filepath.Join(dir, "usr/include")
	abi := &cABI{}
	var unit strings.Builder
	for _, h := range beforeHeaders {
		fmt.Fprintf(&unit, "#include <%s>\n", h)
	}
	for _, h := range cHeaders {
		fmt.Fprintf(&unit, "#include <%s>\n", h)
		text, err := os.ReadFile(filepath.Join(include, h))
		if err != nil {
			return nil, err
		}
		for _, m := range macroLine.FindAllSubmatchIndex(text, -1) {
			if !strings.HasPrefix(string(text[m[2]:m[3]]), macroPrefixes[h]) {
				continue
			}
			abi.Macros = append(abi.Macros, cMacro{
				cConst: cConst{Name: string(text[m[2]:m[3]])},
				Header: filepath.Base(h),
				Line:   1 + bytes.Count(text[:m[0]], []byte("\n")),
			})
		}
	}
	for _, m := range abi.Macros {
		unit.WriteString(constantDecl(m.Name))
	}

	f, err := compileC(dir, unit.String())
	if err != nil {
		return nil, err
	}
	values, err := constants(f)
	if err != nil {
		return nil, err
	}
	for i := range abi.Macros {
		abi.Macros[i].Value = values[abi.Macros[i].Name]
	}
	if err := abi.readTypes(f); err != nil {
		return nil, err
	}
	return abi, nil
}

// compileC compiles a C unit against the headers in dir, with debug information.
func compileC(dir, unit string) (*elf.File, error) {
	tmp, err := os.MkdirTemp("", "uapigen")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	triplet, err := exec.Command("gcc", "-dumpmachine").Output()
	if err != nil {
		return nil, fmt.Errorf("gcc -dumpmachine: %w (install gcc)", err)
	}
	include := filepath.Join(dir, "usr/include")
	asm := filepath.Join(include, strings.TrimSpace(string(triplet)))
	obj := filepath.Join(tmp, "abi.o")
	cmd := exec.Command("gcc", "-c", "-g", "-gdwarf-4", "-O0", "-fno-eliminate-unused-debug-types",
		"-nostdinc", "-isystem", include, "-isystem", asm, "-o", obj, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(unit)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	text, err := os.ReadFile(obj)
	if err != nil {
		return nil, err
	}
	return elf.NewFile(bytes.NewReader(text))
}

// constantDecl is a C declaration whose value constants returns.
func constantDecl(name string) string {
	return fmt.Sprintf("const unsigned long long goverbs_%s = %s;\n", name, name)
}

// constants returns the values of all constantDecls in an object file.
func constants(f *elf.File) (map[string]uint64, error) {
	syms, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	values := map[string]uint64{}
	for _, s := range syms {
		name, ok := strings.CutPrefix(s.Name, "goverbs_")
		if !ok {
			continue
		}
		b := make([]byte, 8)
		if sec := f.Sections[s.Section]; sec.Type != elf.SHT_NOBITS {
			if _, err := sec.ReadAt(b, int64(s.Value)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		values[name] = f.ByteOrder.Uint64(b)
	}
	return values, nil
}

func (abi *cABI) readTypes(f *elf.File) error {
	d, err := f.DWARF()
	if err != nil {
		return err
	}
	c := converter{structs: map[*dwarf.StructType]*cAggregate{}}
	r := d.Reader()
	cu, err := r.Next()
	if err != nil {
		return err
	}
	lines, err := d.LineReader(cu)
	if err != nil {
		return err
	}
	files := lines.Files()
	type place struct {
		header string
		line   int
	}
	places := map[string]place{} // of the tagged structs and unions
	ours := map[string]bool{}
	for _, h := range cHeaders {
		ours[filepath.Base(h)] = true
	}
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		r.SkipChildren()
		switch e.Tag {
		case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType:
		default:
			continue
		}
		file, _ := e.Val(dwarf.AttrDeclFile).(int64)
		line, _ := e.Val(dwarf.AttrDeclLine).(int64)
		if file == 0 || int(file) >= len(files) {
			continue
		}
		header := filepath.Base(files[file].Name)
		t, err := d.Type(e.Offset)
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case *dwarf.EnumType:
			if !ours[header] {
				continue
			}
			en := &cEnum{Tag: t.EnumName, Size: int(t.ByteSize), Header: header, Line: int(line)}
			for _, v := range t.Val {
				en.Values = append(en.Values, cConst{v.Name, uint64(v.Val)})
			}
			abi.Enums = append(abi.Enums, en)
		case *dwarf.StructType:
			if t.StructName == "" || unaligned[t.StructName] {
				continue
			}
			places[t.StructName] = place{header, int(line)}
			if ours[header] {
				if _, err := c.aggregate(t); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range c.structs {
		if s.Tag == "" {
			continue
		}
		s.Header, s.Line = places[s.Tag].header, places[s.Tag].line
		abi.Structs = append(abi.Structs, s)
	}
	sort.Slice(abi.Structs, func(i, j int) bool {
		a, b := abi.Structs[i], abi.Structs[j]
		if a.Header != b.Header {
			return a.Header < b.Header
		}
		return a.Line < b.Line
	})
	sort.SliceStable(abi.Enums, func(i, j int) bool {
		a, b := abi.Enums[i], abi.Enums[j]
		if a.Header != b.Header {
			return a.Header < b.Header
		}
		return a.Line < b.Line
	})
	return nil
}

// converter converts debug information to cTypes, each aggregate once.
type converter struct {
	structs map[*dwarf.StructType]*cAggregate
}

func (c *converter) aggregate(t *dwarf.StructType) (*cAggregate, error) {
	if a := c.structs[t]; a != nil {
		return a, nil
	}
	a := &cAggregate{Tag: t.StructName, Union: t.Kind == "union", Size: int(t.ByteSize)}
	c.structs[t] = a
	for _, f := range t.Field {
		ft, err := c.typ(f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s %s.%s: %w", t.Kind, t.StructName, f.Name, err)
		}
		a.Fields = append(a.Fields, cField{f.Name, int(f.ByteOffset), ft})
	}
	return a, nil
}

func (c *converter) typ(t dwarf.Type) (*cType, error) {
	switch t := t.(type) {
	case *dwarf.TypedefType:
		u, err := c.typ(t.Type)
		if err == nil && strings.HasPrefix(t.Name, "__be") {
			be := *u
			be.BigEndian = true
			u = &be
		}
		return u, err
	case *dwarf.QualType:
		return c.typ(t.Type)
	case *dwarf.UintType, *dwarf.UcharType, *dwarf.CharType, *dwarf.PtrType:
		// The sign of char depends on the architecture, so it becomes unsigned.
		return &cType{Kind: cInt, Size: int(t.Size())}, nil
	case *dwarf.IntType:
		return &cType{Kind: cInt, Size: int(t.Size()), Signed: true}, nil
	case *dwarf.ArrayType:
		elem, err := c.typ(t.Type)
		if err != nil {
			return nil, err
		}
		n := max(int(t.Count), 0)
		return &cType{Kind: cArray, Size: n * elem.Size, Elem: elem, Len: n}, nil
	case *dwarf.StructType:
		a, err := c.aggregate(t)
		if err != nil {
			return nil, err
		}
		return &cType{Kind: cStruct, Size: a.Size, Struct: a}, nil
	}
	return nil, fmt.Errorf("no Go for %T %v", t, t)
}
