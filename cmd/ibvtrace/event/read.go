package event

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// longestLine bounds a line that a Reader takes. The longest real ones, with --raw
// and a kernel's fill of attributes, stay below.
const longestLine = 16 << 20

// A Reader reads a trace in JSON. It takes what it is given: of the same version
// and newer ones that only add to it, nothing makes it panic or use more memory
// than some multiple of a line.
type Reader struct {
	r    *bufio.Reader
	line int
	buf  []byte
}

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read returns the next event, or io.EOF. Other errors say which line; what
// follows can still be read, except after an error of the reader below. A trace
// that ends within a line gives io.ErrUnexpectedEOF for that.
func (r *Reader) Read() (*Event, error) {
	for {
		line, err := r.readLine()
		if err == io.EOF {
			return nil, err
		}
		if err != nil && len(line) == 0 {
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		}
		if len(strings.TrimSpace(string(line))) == 0 {
			continue
		}
		e, wrong := Parse(line)
		if wrong != nil && err != nil {
			wrong = err // a line cut short
		}
		if wrong != nil {
			return nil, fmt.Errorf("line %d: %w", r.line, wrong)
		}
		return e, nil
	}
}

var errLong = errors.New("longer than 16 MiB")

// readLine returns a line, and io.ErrUnexpectedEOF too if it has no end. It
// skips the rest of one that is too long.
func (r *Reader) readLine() ([]byte, error) {
	r.buf = r.buf[:0]
	r.line++
	long := false
	for {
		part, err := r.r.ReadSlice('\n')
		if long = long || len(r.buf)+len(part) > longestLine; !long {
			r.buf = append(r.buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(r.buf) > 0 && !long:
			return r.buf, io.ErrUnexpectedEOF
		case err != nil && !(err == io.EOF && long):
			return nil, err
		case long:
			return nil, errLong
		}
		return r.buf, nil
	}
}

// Parse parses one line.
func Parse(line []byte) (*Event, error) {
	n, err := parse(line)
	if err != nil {
		return nil, err
	}
	if n.kind != isObject {
		return nil, errors.New("not an event")
	}
	version := n.get("v")
	if version == nil || version.kind != isString {
		return nil, errors.New("not an event: no version")
	}
	if major, _, _ := strings.Cut(version.text, "."); major != "1" {
		return nil, fmt.Errorf("version %q; this ibvtrace reads 1", version.text)
	}
	e := &Event{FD: -1}
	d := decoder{types: make(map[string]string)}
	if types := n.get("types"); types != nil && types.kind == isObject {
		for i := range types.names {
			d.types[types.names[i]] = types.nodes[i].text
		}
	}
	for i := range n.names {
		d.field(e, n.names[i], &n.nodes[i])
	}
	if e.Time.IsZero() || e.Kind == "" {
		d.fail("ts or kind is missing")
	}
	return e, d.err
}

// A decoder keeps the first error.
type decoder struct {
	types map[string]string // by path
	err   error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) field(e *Event, name string, n *node) {
	switch name {
	case "ts":
		t, err := time.Parse(time.RFC3339Nano, d.str(name, n))
		if err != nil {
			d.fail("ts is %q", n.text)
		}
		e.Time = t
	case "pid":
		e.PID = int(d.int(name, n))
	case "tid":
		e.TID = int(d.int(name, n))
	case "comm":
		e.Comm = d.str(name, n)
	case "kind":
		e.Kind = Kind(d.str(name, n))
	case "verb":
		e.Verb = d.str(name, n)
	case "object":
		e.Object = d.str(name, n)
	case "method":
		e.Method = d.str(name, n)
	case "dev":
		e.Device = d.str(name, n)
	case "driver":
		e.Driver = d.str(name, n)
	case "file":
		e.File = int(d.int(name, n))
	case "fd":
		e.FD = int(d.int(name, n))
	case "path":
		e.Path = d.str(name, n)
	case "args":
		e.Args = d.fields(n, name)
	case "out":
		e.Out = d.fields(n, name)
	case "problem":
		e.Problem = d.str(name, n)
	case "ret":
		e.Ret, e.Returned = d.int(name, n), true
	case "errno":
		e.Errno = d.str(name, n)
	case "error":
		e.Error = d.str(name, n)
	case "rejects":
		e.Rejects = d.str(name, n)
	case "why":
		e.Why = d.str(name, n)
	case "dur_ns":
		e.Duration, e.Timed = time.Duration(d.int(name, n)), true
	case "created":
		e.Created = d.objects(name, n)
	case "destroyed":
		e.Destroyed = d.objects(name, n)
	case "raw":
		for i := range d.array(name, n) {
			e.Raw = append(e.Raw, d.raw(&n.nodes[i]))
		}
	}
}

func (d *decoder) str(name string, n *node) string {
	if n == nil {
		return ""
	}
	if n.kind != isString {
		d.fail("%s is not a string", name)
	}
	return n.text
}

func (d *decoder) int(name string, n *node) int64 {
	if n == nil {
		return 0
	}
	i, err := strconv.ParseInt(n.text, 10, 64)
	if n.kind != isNumber || err != nil {
		d.fail("%s is not a number", name)
	}
	return i
}

func (d *decoder) uint(name string, n *node) uint64 {
	if n == nil {
		return 0
	}
	u, err := strconv.ParseUint(n.text, 10, 64)
	if n.kind != isNumber || err != nil {
		d.fail("%s is not a number", name)
	}
	return u
}

func (d *decoder) array(name string, n *node) []node {
	if n.kind != isArray {
		d.fail("%s is not an array", name)
		return nil
	}
	return n.nodes
}

func (d *decoder) objects(name string, n *node) []Object {
	var out []Object
	for i := range d.array(name, n) {
		o := &n.nodes[i]
		before := o.get("before")
		out = append(out, Object{
			Type:   d.str("type", o.get("type")),
			Handle: d.uint("handle", o.get("handle")),
			Gen:    int(d.int("gen", o.get("gen"))),
			File:   int(d.int("file", o.get("file"))),
			Num:    d.uint("num", o.get("num")),
			Before: before != nil && before.kind == isTrue,
		})
	}
	return out
}

func (d *decoder) raw(n *node) RawAttr {
	small := func(name string) uint16 { return uint16(d.uint(name, n.get(name))) }
	return RawAttr{
		ID:    small("id"),
		Name:  d.str("name", n.get("name")),
		Len:   small("len"),
		Flags: small("flags"),
		Elem:  small("elem"),
		Data:  d.address("data", d.str("data", n.get("data"))),
		Bytes: []byte(d.hex("bytes", d.str("bytes", n.get("bytes")))),
	}
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
		d.fail("%s are not hexadecimal digits", path)
	}
	return string(b)
}

func (d *decoder) fields(n *node, path string) []Field {
	if n.kind != isObject {
		d.fail("%s is not an object", path)
		return nil
	}
	var out []Field
	for i := range n.names {
		out = append(out, Field{n.names[i], d.value(&n.nodes[i], path+"."+n.names[i])})
	}
	return out
}

// value turns JSON into a value. A type that this version does not know, or that
// does not fit, leaves what the JSON says by itself.
func (d *decoder) value(n *node, path string) Value {
	what := d.types[path]
	switch n.kind {
	case isFalse, isTrue:
		return Value{Form: Bool, Num: uint64(n.kind - isFalse)}
	case isNumber:
		return d.number(n, path, what)
	case isString:
		switch what {
		case "ptr":
			return Value{Form: Pointer, Num: d.address(path, n.text)}
		case "text":
			return Value{Form: Text, Str: n.text}
		case "bytes":
			return Value{Form: Bytes, Str: d.hex(path, n.text)}
		}
		return Value{Form: Word, Str: n.text}
	case isArray:
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
	case isObject:
		if what == "unreadable" {
			return Value{Form: Lost, Num: d.address(path, d.str(path, n.get("unreadable")))}
		}
		return Value{Form: Struct, Fields: d.fields(n, path)}
	}
	return Value{Form: Word, Str: "null"}
}

func (d *decoder) number(n *node, path, what string) Value {
	if i, err := strconv.ParseInt(n.text, 10, 64); err == nil && i < 0 {
		v := Value{Form: Int, Num: uint64(i)}
		if what == "fd" {
			v.Form = FD
		}
		return v
	}
	u, err := strconv.ParseUint(n.text, 10, 64)
	if err != nil {
		return Value{Form: Word, Str: n.text}
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
