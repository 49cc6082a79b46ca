package uapi

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A cType is the C counterpart of a Go type: parent, or the member of parent that path selects.
type cType struct {
	typ    reflect.Type
	desc   *Struct
	parent string   // "struct rxe_send_wr"
	path   string   // "wr.rdma", or ""
	fields []string // C's names of the Go fields; nil for a union
}

// A cView is the C counterpart of the result of a method that views a union.
type cView struct {
	recv     reflect.Type
	method   string
	parent   string
	recvPath string // the union in parent
	path     string // the variant in parent
}

// A cOffset is the C counterpart of a constant for a flexible array's offset.
type cOffset struct {
	offset uintptr
	parent string
	path   string
}

// An assertion is one line of C, and its subject.
type assertion struct{ about, expr string }

// selected returns a C expression for the member that path selects.
func selected(parent, path string) string {
	if path == "" {
		return fmt.Sprintf("(*(%s *)0)", parent)
	}
	return fmt.Sprintf("((%s *)0)->%s", parent, path)
}

// offset returns a C expression for path's offset in the member that base selects.
func offset(parent, base, path string) string {
	if base == path {
		return "0"
	}
	if base == "" {
		return fmt.Sprintf("__builtin_offsetof(%s, %s)", parent, path)
	}
	return fmt.Sprintf("__builtin_offsetof(%s, %s) - __builtin_offsetof(%s, %s)", parent, path, parent, base)
}

// layoutAssertions expresses in C the layout of all generated types, from Go's reflection,
// and the values of the constants.
func layoutAssertions(t *testing.T) []assertion {
	var as []assertion
	assert := func(about, f string, args ...any) {
		as = append(as, assertion{about, fmt.Sprintf(f, args...)})
	}
	for _, c := range cTypes {
		name := c.parent
		if c.path != "" {
			name += "." + c.path
		}
		assert(name, "sizeof(%s) == %d", selected(c.parent, c.path), c.typ.Size())
		if c.fields == nil {
			assert(name+" (alignment)", "_Alignof(%s) == %d", selected(c.parent, c.path), c.typ.Align())
			continue
		}
		fields := c.fields
		for i := range c.typ.NumField() {
			f := c.typ.Field(i)
			if f.Name == "_" {
				continue
			}
			if len(fields) == 0 {
				t.Fatalf("%v has more fields than C", c.typ)
			}
			path := fields[0]
			if c.path != "" {
				path = c.path + "." + path
			}
			assert(name+"."+fields[0], "%s == %d && sizeof(%s) == %d", offset(c.parent, c.path, path), f.Offset, selected(c.parent, path), f.Type.Size())
			fields = fields[1:]
		}
		if len(fields) > 0 {
			t.Errorf("%v lacks %v", c.typ, fields)
		}
	}
	for _, v := range cViews {
		m, ok := v.recv.MethodByName(v.method)
		if !ok {
			t.Errorf("%v has no method %s", v.recv, v.method)
			continue
		}
		// A call of the method shows the place of its result in the receiver.
		recv := reflect.New(v.recv.Elem())
		view := m.Func.Call([]reflect.Value{recv})[0]
		at := view.Pointer() - recv.Pointer()
		assert(v.parent+"."+v.path+" (view)", "%s == %d && sizeof(%s) == %d && sizeof(%s) == %d", offset(v.parent, v.recvPath, v.path), at,
			selected(v.parent, v.path), view.Type().Elem().Size(), selected(v.parent, v.recvPath), v.recv.Elem().Size())
		if at+view.Type().Elem().Size() > v.recv.Elem().Size() || view.Type().Elem().Align() > v.recv.Elem().Align() {
			t.Errorf("%v.%s reaches beyond its union", v.recv, v.method)
		}
	}
	for _, o := range cOffsets {
		assert(o.parent+"."+o.path, "%s == %d", offset(o.parent, "", o.path), o.offset)
	}
	for _, c := range cConsts {
		assert(c.CName, "(unsigned long long)(%s) == %dULL", c.CName, c.Value)
	}
	return as
}

// headers returns the directory with the headers of a Linux release.
func headers(t *testing.T, release string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("../internal/uapigen/headers", release)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("internal/uapigen/headers %s: %v\n%s", release, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

var gccError = regexp.MustCompile(`(?m)^<stdin>:(\d+):\d+: error: (.*)$`)

// failing compiles the assertions and returns the subjects of those that fail.
func failing(t *testing.T, dir, triplet string, as []assertion) []string {
	t.Helper()
	gcc := triplet + "-gcc"
	if _, err := exec.LookPath(gcc); err != nil {
		t.Fatalf("%s is missing: apt-get install gcc-%s", gcc, strings.ReplaceAll(triplet, "_", "-"))
	}
	var unit bytes.Buffer
	unit.WriteString("#include <linux/netlink.h>\n")
	for _, h := range []string{"rdma_user_ioctl_cmds", "ib_user_ioctl_cmds", "ib_user_verbs", "ib_user_ioctl_verbs", "rdma_user_rxe", "siw-abi", "efa-abi",
		"mlx5_user_ioctl_cmds", "mlx5_user_ioctl_verbs", "mlx5-abi", "ib_user_sa", "rdma_user_cm", "rdma_netlink",
		"ib_user_mad", "rdma_user_ioctl"} {
		fmt.Fprintf(&unit, "#include <rdma/%s.h>\n", h)
	}
	first := bytes.Count(unit.Bytes(), []byte("\n")) + 1
	for _, a := range as {
		fmt.Fprintf(&unit, "_Static_assert(%s, \"\");\n", a.expr)
	}
	include := filepath.Join(dir, "usr/include")
	cmd := exec.Command(gcc, "-fsyntax-only", "-fmax-errors=0", "-nostdinc", "-isystem", include, "-isystem", filepath.Join(include, triplet), "-x", "c", "-")
	cmd.Stdin = &unit
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	var about []string
	for _, m := range gccError.FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(m[1]))
		if line < first || line >= first+len(as) {
			t.Fatalf("%s:\n%s", gcc, out)
		}
		about = append(about, as[line-first].about)
	}
	if err != nil && about == nil {
		t.Fatalf("%s: %v\n%s", gcc, err, out)
	}
	slices.Sort(about)
	return slices.Compact(about)
}

var triplets = []string{"x86_64-linux-gnu", "aarch64-linux-gnu"}

// Every type and constant agrees with C's in its header.
func TestLayout(t *testing.T) {
	as := layoutAssertions(t)
	if len(as) < 2000 {
		t.Errorf("only %d assertions: the tables are not complete", len(as))
	}
	dir := headers(t, "7.3")
	for _, triplet := range triplets {
		for _, about := range failing(t, dir, triplet, as) {
			t.Errorf("%s: %s differs from C", triplet, about)
		}
	}
}

// A wrong layout is found.
func TestLayoutDetects(t *testing.T) {
	as := []assertion{
		{"right", "sizeof(struct ib_uverbs_sge) == 16"},
		{"wrong size", "sizeof(struct ib_uverbs_sge) == 24"},
		{"missing field", "__builtin_offsetof(struct ib_uverbs_sge, nothing) == 0"},
		{"missing constant", "IB_UVERBS_NOTHING == 0"},
	}
	got := failing(t, headers(t, "7.3"), triplets[0], as)
	if want := []string{"missing constant", "missing field", "wrong size"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// Linux 6.1 has the same types and constants, except for the entries of
// testdata/since-6.1.txt, which must differ: they came later, or have grown.
func TestLayoutLinux61(t *testing.T) {
	const list = "testdata/since-6.1.txt"
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	as := layoutAssertions(t)
	dir := headers(t, "6.1")
	for _, triplet := range triplets {
		got := failing(t, dir, triplet, as)
		for _, about := range got {
			if !slices.Contains(want, about) {
				t.Errorf("%s: %s differs from Linux 6.1, and is not in %s", triplet, about, list)
			}
		}
		for _, about := range want {
			if !slices.Contains(got, about) {
				t.Errorf("%s: %s is in %s, and does not differ from Linux 6.1", triplet, about, list)
			}
		}
	}
}

// The schema's descriptions of structs are those of the Go types.
func TestStructDescriptions(t *testing.T) {
	for _, c := range cTypes {
		d := c.desc
		if d.Name != c.typ.Name() || d.Size != int(c.typ.Size()) {
			t.Errorf("%v has %d bytes, its description says %s with %d", c.typ, c.typ.Size(), d.Name, d.Size)
		}
		if c.fields == nil {
			continue
		}
		fields := d.Fields
		for i := range c.typ.NumField() {
			f := c.typ.Field(i)
			if f.Name == "_" {
				continue
			}
			if len(fields) == 0 || fields[0].Name != f.Name || fields[0].Offset != int(f.Offset) || fields[0].Size != int(f.Type.Size()) || fields[0].Type.Size != fields[0].Size {
				t.Errorf("%v.%s is not as described", c.typ, f.Name)
				break
			}
			fields = fields[1:]
		}
		for _, f := range fields { // flexible arrays
			if f.Size != 0 || f.Type.Kind != TypeArray && f.Type.Kind != TypeBytes {
				t.Errorf("%v has no field %s", c.typ, f.Name)
			}
		}
	}
}
