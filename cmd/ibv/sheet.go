package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// A sheet collects a device's properties in two forms: as lines of text in
// ibv_devinfo's layout, and as a JSON object.
type sheet struct {
	text   *strings.Builder
	keys   []string
	values map[string]any
}

func newSheet() *sheet { return newPart(new(strings.Builder)) }

func newPart(text *strings.Builder) *sheet {
	return &sheet{text: text, values: make(map[string]any)}
}

// put adds a line. The property's name is the text before the colon in the layout,
// and its value is the first argument.
func (s *sheet) put(layout string, args ...any) {
	name, _, _ := strings.Cut(layout, ":")
	name = strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	s.set(name, args[0])
	fmt.Fprintf(s.text, layout, args...)
}

// note adds text that is not a property.
func (s *sheet) note(layout string, args ...any) { fmt.Fprintf(s.text, layout, args...) }

// set adds a property that only the JSON shows. An enumeration becomes a word,
// or a number if it encodes a number.
func (s *sheet) set(name string, value any) {
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

// part adds a nested object. Its text goes where the object is added.
func (s *sheet) part(name string) *sheet {
	p := newPart(s.text)
	s.set(name, p)
	return p
}

const flagIndent = "\t\t\t\t\t"

// flags adds a set of flags. In the text each flag has a line with ibv_devinfo's
// word for the flag. Flags without a word come last, as a number.
func (s *sheet) flags(name string, bits uint64, names fmt.Stringer, word func(bit uint64) string) {
	unknown := uint64(0)
	for left := bits; left != 0; left &= left - 1 {
		bit := left & -left
		if w := word(bit); w != "" {
			s.note(flagIndent+"%s\n", w)
		} else {
			unknown |= bit
		}
	}
	if unknown != 0 {
		s.note(flagIndent+"Unknown flags: 0x%X\n", unknown)
	}
	s.setFlags(name, bits, names)
}

// setFlags adds a set of flags that the text doesn't list.
func (s *sheet) setFlags(name string, bits uint64, names fmt.Stringer) {
	list := []string{}
	if bits != 0 {
		list = strings.Split(names.String(), "|")
	}
	s.set(name, list)
}

// MarshalJSON writes the properties in the order in which they were added.
func (s *sheet) MarshalJSON() ([]byte, error) {
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
