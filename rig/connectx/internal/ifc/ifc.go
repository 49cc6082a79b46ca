// Package ifc reads and writes the fields of the command layouts that the driver and the
// firmware of an mlx5 HCA share, by their names in the kernel's mlx5_ifc.h. Words are
// big-endian, and offsets count from the most significant bit.
package ifc

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

//go:generate sh -c "go run ./gen /usr/src/linux-headers-7.2*-common/include/linux/mlx5/mlx5_ifc.h >layouts.txt"

//go:embed layouts.txt
var table string

// Field is a field's place in a layout.
type Field struct {
	Offset int // in bits
	Width  int // in bits, of one element
	Count  int // elements of an array; 1 otherwise; 0: as many as fit
	layout string
}

// Layout is the format of a command's in- or outbox, a context or a register.
type Layout struct {
	Name  string
	Bits  int
	paths map[string]Field
}

// Size returns the layout's size in bytes.
func (l *Layout) Size() int { return l.Bits / 8 }

var layouts = parse()

func parse() map[string]*Layout {
	all := map[string]*Layout{}
	var at *Layout
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		number := func(i int) int {
			n, err := strconv.Atoi(words[i])
			if err != nil {
				panic("ifc: layouts.txt: " + line)
			}
			return n
		}
		switch {
		case line[0] == '#':
		case line[0] != '\t':
			at = &Layout{Name: words[0], Bits: number(1), paths: map[string]Field{}}
			all[at.Name] = at
		default:
			f := Field{Offset: number(1), Width: number(2), Count: number(3)}
			if len(words) > 4 {
				f.layout = words[4]
			}
			at.paths[words[0]] = f
		}
	}
	// Computed at the start, so that look-ups write nothing and need no lock.
	for _, l := range all {
		expand(all, l)
	}
	return all
}

var expanded = map[string]bool{}

// expand adds the paths of nested layouts: "qpc" adds "qpc.state".
func expand(all map[string]*Layout, l *Layout) {
	if expanded[l.Name] {
		return
	}
	expanded[l.Name] = true
	deeper := map[string]Field{}
	for name, f := range l.paths {
		inner := all[f.layout]
		if inner == nil {
			continue
		}
		expand(all, inner)
		for i := range f.Count {
			prefix := name
			if f.Count != 1 {
				prefix = fmt.Sprintf("%s[%d]", name, i)
			}
			for path, g := range inner.paths {
				g.Offset += f.Offset + i*f.Width
				deeper[prefix+"."+path] = g
			}
		}
	}
	for path, f := range deeper {
		l.paths[path] = f
	}
}

// Of returns the layout called name. It panics if there is none, because names are
// constants of the program.
func Of(name string) *Layout {
	l, ok := layouts[name]
	if !ok {
		panic("ifc: no layout " + name)
	}
	return l
}

// Field returns the field at path, such as "qpc.primary_address_path.rlid", and
// panics if there is none.
func (l *Layout) Field(path string) Field {
	f, ok := l.paths[path]
	if !ok {
		panic("ifc: no field " + path + " in " + l.Name)
	}
	return f
}

// View is memory with a layout. Fields beyond the memory's end read as 0 and aren't
// written, because a driver may know a shorter or longer form.
type View struct {
	*Layout
	Data []byte
}

// On returns a View of data with the layout called name.
func On(name string, data []byte) View { return View{Of(name), data} }

// Make returns an all-zero View of the layout called name.
func Make(name string) View {
	l := Of(name)
	return View{l, make([]byte, l.Size())}
}

// Get returns the value of the field at path, of up to 64 bits.
func (v View) Get(path string) uint64 { return get(v.Data, v.Field(path)) }

// Set sets the field at path, of up to 64 bits; bits that do not fit are lost.
func (v View) Set(path string, value uint64) { set(v.Data, v.Field(path), value) }

// Flag reports whether the field at path isn't 0.
func (v View) Flag(path string) bool { return v.Get(path) != 0 }

// SetFlag sets the field at path to 1 or 0.
func (v View) SetFlag(path string, on bool) {
	var value uint64
	if on {
		value = 1
	}
	v.Set(path, value)
}

// At returns the i-th element of the array at path.
func (v View) At(path string, i int) uint64 {
	f := v.Field(path)
	f.Offset += i * f.Width
	return get(v.Data, f)
}

// SetAt sets the i-th element of the array at path.
func (v View) SetAt(path string, i int, value uint64) {
	f := v.Field(path)
	f.Offset += i * f.Width
	set(v.Data, f, value)
}

// Bytes returns the memory of the field at path, which must be whole bytes. It returns nil
// if the memory is too short. An array without a size extends to the memory's end.
func (v View) Bytes(path string) []byte {
	f := v.Field(path)
	from, to := f.Offset/8, (f.Offset+f.Width*f.Count)/8
	if f.Count == 0 {
		to = len(v.Data)
	}
	if from > to || to > len(v.Data) {
		return nil
	}
	return v.Data[from:to:to]
}

// Sub returns the nested layout at path.
func (v View) Sub(path string) View {
	f := v.Field(path)
	if f.layout == "" {
		panic("ifc: " + path + " in " + v.Name + " is no layout")
	}
	from := min(f.Offset/8, len(v.Data))
	to := min(from+f.Width/8, len(v.Data))
	return View{Of(f.layout), v.Data[from:to:to]}
}

// A field of 64 bits is two whole words. Any other field lies within one word, except
// arrays of bytes, whose elements do.
func get(data []byte, f Field) uint64 {
	word, shift := f.Offset/32*4, 32-f.Offset%32-f.Width
	if f.Width == 64 {
		if word+8 > len(data) {
			return 0
		}
		return binary.BigEndian.Uint64(data[word:])
	}
	if word+4 > len(data) {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(data[word:])) >> shift & (1<<f.Width - 1)
}

func set(data []byte, f Field, value uint64) {
	word, shift := f.Offset/32*4, 32-f.Offset%32-f.Width
	if f.Width == 64 {
		if word+8 <= len(data) {
			binary.BigEndian.PutUint64(data[word:], value)
		}
		return
	}
	if word+4 > len(data) {
		return
	}
	mask := uint32(1<<f.Width-1) << shift
	old := binary.BigEndian.Uint32(data[word:])
	binary.BigEndian.PutUint32(data[word:], old&^mask|uint32(value)<<shift&mask)
}
