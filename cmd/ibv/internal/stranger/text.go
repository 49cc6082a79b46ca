// Package stranger is for peers that aren't trusted. It limits the length and the time of their
// messages and the number of peers, and makes their text safe to print. It does the same with
// the text of other programs of this host.
package stranger

import (
	"reflect"
	"strings"
	"unicode"
)

// Text returns a peer's text in a form that is safe to print. A space replaces each character that
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
