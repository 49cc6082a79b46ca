package event

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A decoder converts JSON to values, with the types that the line has for them. It keeps the
// first error.
type decoder struct {
	types map[string]string // by path
	err   error
}

func newDecoder(types json.RawMessage) *decoder {
	d := &decoder{types: make(map[string]string)}
	if len(types) == 0 {
		return d
	}
	n := d.parse(types)
	for i := range n.names {
		d.types[n.names[i]], _ = n.nodes[i].scalar.(string)
	}
	return d
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) parse(b json.RawMessage) node {
	n, err := parse(b)
	if err != nil {
		d.fail("%w", errSyntax)
	}
	return n
}

// arguments decodes args or out.
func (d *decoder) arguments(name string, b json.RawMessage) []Field {
	if len(b) == 0 {
		return nil
	}
	n := d.parse(b)
	if n.kind != object {
		d.fail("%s is not an object", name)
	}
	return d.fields(&n, name)
}

func (d *decoder) fields(n *node, path string) []Field {
	var out []Field
	for i := range n.names {
		out = append(out, Field{n.names[i], d.value(&n.nodes[i], path+"."+n.names[i])})
	}
	return out
}

// value converts JSON to a value. It ignores types that this version does not know, and types
// that do not fit the JSON.
func (d *decoder) value(n *node, path string) Value {
	what := d.types[path]
	switch n.kind {
	case array:
		if what == "flags" {
			v := Value{Form: Flags}
			for i := range n.nodes {
				v.Words = append(v.Words, d.str(path, &n.nodes[i]))
			}
			return v
		}
		v := Value{Form: List}
		for i := range n.nodes {
			v.Elems = append(v.Elems, d.value(&n.nodes[i], path+"."+strconv.Itoa(i)))
		}
		return v
	case object:
		if what == "unreadable" {
			var s string
			if addr := n.get("unreadable"); addr != nil {
				s = d.str(path, addr)
			}
			return Value{Form: Lost, Num: d.address(path, s)}
		}
		return Value{Form: Struct, Fields: d.fields(n, path)}
	}
	switch s := n.scalar.(type) {
	case bool:
		if s {
			return Value{Form: Bool, Num: 1}
		}
		return Value{Form: Bool}
	case json.Number:
		return d.number(string(s), path, what)
	case string:
		switch what {
		case "ptr":
			return Value{Form: Pointer, Num: d.address(path, s)}
		case "text":
			return Value{Form: Text, Str: s}
		case "bytes":
			return Value{Form: Bytes, Str: d.hex(path, s)}
		}
		return Value{Form: Word, Str: s}
	}
	return Value{Form: Word, Str: "null"}
}

func (d *decoder) number(s, path, what string) Value {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && i < 0 {
		v := Value{Form: Int, Num: uint64(i)}
		if what == "fd" {
			v.Form = FD
		}
		return v
	}
	u, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return Value{Form: Word, Str: s}
	}
	v := Value{Form: Uint, Num: u}
	switch what {
	case "":
	case "fd":
		v.Form = FD
	case "int":
		v.Form = Int
	case "hex":
		v.Form = Hex
	default:
		if object, gen, ok := strings.Cut(what, "#"); ok {
			g, err := strconv.Atoi(gen)
			if err != nil {
				d.fail("the type of %s is %q", path, what)
			}
			v.Form, v.Str, v.Gen = Handle, object, g
		}
	}
	return v
}

func (d *decoder) str(path string, n *node) string {
	s, ok := n.scalar.(string)
	if !ok {
		d.fail("%s is not a string", path)
	}
	return s
}

func (d *decoder) address(path, s string) uint64 {
	digits, ok := strings.CutPrefix(s, "0x")
	u, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil {
		d.fail("%s is not an address", path)
	}
	return u
}

func (d *decoder) hex(path, s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		d.fail("%s is not hexadecimal", path)
	}
	return string(b)
}
