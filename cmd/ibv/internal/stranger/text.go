// Package stranger is for peers that may be anybody. It bounds the length and the time of their
// messages and how many of them are let in, and makes their text harmless. So it does with that
// of other programs of this host.
package stranger

import (
	"reflect"
	"strings"
	"unicode"
)

// Text returns a peer's text as one that can be printed. A space stands for each character that
// isn't a letter, mark, number, symbol or punctuation, so that the text can neither control a
// terminal nor begin a line.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// clean replaces all strings that can be set in v by their Text.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(Text(v.String()))
		}
	case reflect.Pointer:
		clean(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			clean(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				clean(v.Index(i))
			}
		}
	}
}
