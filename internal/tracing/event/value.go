package event

import (
	"slices"
	"strings"
)

// A Form is the kind of a value. It determines how the value is written.
type Form uint8

const (
	Uint    Form = iota
	Int          // Num is an int64
	Hex          // an unsigned number that is usually written in hexadecimal: a key, a QP number
	Bool         // Num is 0 or 1
	Handle       // Num is a handle, Str the Object.Type, Gen the generation
	FD           // a file descriptor: Num is an int64
	Pointer      // an address in the program's memory
	Word         // Str: the name of an enumeration's value, a GID, an address
	Flags        // Words
	Text         // Str: text that the program chose
	Bytes        // Str: arbitrary bytes
	Struct       // Fields
	List         // Elems
	Lost         // memory at Num that could not be read
)

// A Value is an argument or a result, or a part of one.
type Value struct {
	Form   Form
	Num    uint64
	Str    string
	Gen    int // Handle; 0: not known
	Words  []string
	Fields []Field
	Elems  []Value
}

// A Field is a value with its name.
type Field struct {
	Name  string
	Value Value
}

// Find returns the value with a name, or nil if there is none. A dot separates the names of
// nested fields: "cap.max_send_wr".
func Find(fields []Field, name string) *Value {
	name, rest, deeper := strings.Cut(name, ".")
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	switch {
	case i < 0:
		return nil
	case deeper:
		return Find(fields[i].Value.Fields, rest)
	}
	return &fields[i].Value
}

// Walk calls f for all values, including those in structs and lists.
func Walk(fields []Field, f func(*Value)) {
	for i := range fields {
		fields[i].Value.walk(f)
	}
}

func (v *Value) walk(f func(*Value)) {
	f(v)
	Walk(v.Fields, f)
	for i := range v.Elems {
		v.Elems[i].walk(f)
	}
}
