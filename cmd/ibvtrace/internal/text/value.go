package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// Value formats a value as on a line, with at most 32 bytes of data.
func Value(v *event.Value) string {
	w := Writer{opt: Options{MaxBytes: 32}}
	return string(w.value(nil, v))
}

func (w *Writer) fields(b []byte, fields []event.Field) []byte {
	for i := range fields {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = w.field(b, &fields[i])
	}
	return b
}

func (w *Writer) field(b []byte, f *event.Field) []byte {
	b = append(b, Clean(f.Name)...)
	b = append(b, '=')
	return w.value(b, &f.Value)
}

func (w *Writer) value(b []byte, v *event.Value) []byte {
	switch v.Form {
	case event.Uint, event.Bool:
		return strconv.AppendUint(b, v.Num, 10)
	case event.Int, event.FD:
		return strconv.AppendInt(b, int64(v.Num), 10)
	case event.Hex, event.Pointer:
		return fmt.Appendf(b, "%#x", v.Num)
	case event.Handle:
		b = strconv.AppendUint(b, v.Num, 10)
		if v.Gen > 1 {
			b = fmt.Appendf(b, "#%d", v.Gen)
		}
		return b
	case event.Flags:
		if len(v.Words) == 0 {
			return append(b, '0')
		}
		return append(b, Clean(strings.Join(v.Words, "|"))...)
	case event.Text:
		s, rest := v.Str, ""
		if !w.opt.Verbose && len(s) > maxText {
			cut := maxText
			for cut > 0 && !utf8.RuneStart(s[cut]) {
				cut--
			}
			s, rest = s[:cut], "..."
		}
		return append(strconv.AppendQuote(b, s), rest...)
	case event.Bytes:
		return w.bytes(b, v.Str)
	case event.Struct:
		return w.structure(b, v.Fields)
	case event.List:
		b = append(b, '[')
		for i := range v.Elems {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = w.value(b, &v.Elems[i])
		}
		return append(b, ']')
	case event.Lost:
		return fmt.Appendf(b, "?%#x", v.Num)
	}
	return append(b, Clean(v.Str)...)
}

// maxText bounds the bytes of a string, such as an address or a path, unless the line is verbose.
const maxText = 256

func (w *Writer) bytes(b []byte, s string) []byte {
	if !w.opt.Verbose && len(s) > w.opt.MaxBytes {
		return fmt.Appendf(b, "%#x...(%d bytes)", s[:w.opt.MaxBytes], len(s))
	}
	if s == "" {
		return append(b, '0', 'x')
	}
	return fmt.Appendf(b, "%#x", s)
}

// small is the number of fields up to which a struct is shown whole. Larger ones are shown
// without fields that are zero.
const small = 5

func (w *Writer) structure(b []byte, fields []event.Field) []byte {
	b = append(b, '{')
	first := true
	for i := range fields {
		if !w.opt.Verbose && len(fields) > small && isZero(&fields[i].Value) {
			continue
		}
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = w.field(b, &fields[i])
	}
	return append(b, '}')
}

// isZero reports whether a value is 0, or a struct of zeros.
func isZero(v *event.Value) bool {
	switch v.Form {
	case event.Word, event.Lost, event.Handle:
		return false
	}
	if v.Num != 0 || len(v.Words) > 0 || len(v.Elems) > 0 || strings.Trim(v.Str, "\x00") != "" {
		return false
	}
	for i := range v.Fields {
		if !isZero(&v.Fields[i].Value) {
			return false
		}
	}
	return true
}

// Clean replaces control characters in a string that a program chose, also those that change the
// direction of what follows.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
}
