// Package sheet describes objects in two forms: as lines of text, and as JSON.
package sheet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// A Sheet collects an object's properties in two forms: as lines of text in
// ibv_devinfo's layout, and as a JSON object.
type Sheet struct {
	text   *strings.Builder
	keys   []string
	values map[string]any
}

// New returns an empty sheet.
func New() *Sheet { return part(new(strings.Builder)) }

// Element returns a sheet for an element of a list. Its text goes where the element is described.
func (s *Sheet) Element() *Sheet { return part(s.text) }

func part(text *strings.Builder) *Sheet { return &Sheet{text: text, values: make(map[string]any)} }

// Text returns the text.
func (s *Sheet) Text() string { return s.text.String() }

// Value returns a property, or nil.
func (s *Sheet) Value(name string) any { return s.values[name] }

// Put adds a line. The property's name is the text before the colon in the layout,
// and its value is the first argument.
func (s *Sheet) Put(layout string, args ...any) {
	name, _, _ := strings.Cut(layout, ":")
	name = strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	s.Set(name, args[0])
	fmt.Fprintf(s.text, layout, args...)
}

// Note adds text that is not a property.
func (s *Sheet) Note(layout string, args ...any) { fmt.Fprintf(s.text, layout, args...) }

// Set adds a property that only the JSON shows. An enumeration becomes a word,
// or a number if it encodes a number.
func (s *Sheet) Set(name string, value any) {
	switch v := value.(type) {
	case verbs.MTU:
		value = v.Bytes()
	case verbs.VLNum:
		value = v.Count()
	case fmt.Stringer:
		value = v.String()
	}
	s.keys = append(s.keys, name)
	s.values[name] = value
}

// Part adds a nested object. Its text goes where the object is added.
func (s *Sheet) Part(name string) *Sheet {
	p := s.Element()
	s.Set(name, p)
	return p
}

// FlagIndent precedes the name of a flag on its line.
const FlagIndent = "\t\t\t\t\t"

// Flags adds a set of flags. In the text each flag has a line with ibv_devinfo's
// word for the flag. Flags without a word come last, as a number.
func (s *Sheet) Flags(name string, bits uint64, names fmt.Stringer, word func(bit uint64) string) {
	unknown := uint64(0)
	for left := bits; left != 0; left &= left - 1 {
		bit := left & -left
		if w := word(bit); w != "" {
			s.Note(FlagIndent+"%s\n", w)
		} else {
			unknown |= bit
		}
	}
	if unknown != 0 {
		s.Note(FlagIndent+"Unknown flags: 0x%X\n", unknown)
	}
	s.SetFlags(name, bits, names)
}

// SetFlags adds a set of flags that the text doesn't list.
func (s *Sheet) SetFlags(name string, bits uint64, names fmt.Stringer) {
	list := []string{}
	if bits != 0 {
		list = strings.Split(names.String(), "|")
	}
	s.Set(name, list)
}

// MarshalJSON writes the properties in the order in which they were added.
func (s *Sheet) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range s.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(s.values[key])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", key, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Write writes objects: a line for each, or a JSON array.
func Write(w io.Writer, asJSON, pretty bool, sheets []*Sheet) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		if pretty {
			e.SetIndent("", "    ")
		}
		if sheets == nil {
			sheets = []*Sheet{}
		}
		return e.Encode(sheets)
	}
	var b strings.Builder
	for _, s := range sheets {
		for line := range strings.Lines(s.Text()) {
			b.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
