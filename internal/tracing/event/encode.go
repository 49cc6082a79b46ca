package event

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A typeList collects the types of values that JSON itself does not distinguish. It is a JSON
// object without the last brace, or empty.
type typeList []byte

func (t *typeList) add(path, what string) {
	b := comma(*t, len(*t))
	if len(b) == 0 {
		b = append(b, '{')
	}
	b = append(appendString(b, path), ':')
	*t = appendString(b, what)
}

func (t *typeList) appendFields(b []byte, fields []Field, path string) []byte {
	b = append(b, '{')
	for i := range fields {
		b = appendString(comma(b, i), fields[i].Name)
		b = append(b, ':')
		b = t.appendValue(b, &fields[i].Value, path+"."+fields[i].Name)
	}
	return append(b, '}')
}

func (t *typeList) appendValue(b []byte, v *Value, path string) []byte {
	switch v.Form {
	case Uint:
		return strconv.AppendUint(b, v.Num, 10)
	case Int, FD:
		if v.Form == FD {
			t.add(path, "fd")
		} else if int64(v.Num) >= 0 {
			t.add(path, "int")
		}
		return strconv.AppendInt(b, int64(v.Num), 10)
	case Hex:
		t.add(path, "hex")
		return strconv.AppendUint(b, v.Num, 10)
	case Bool:
		return strconv.AppendBool(b, v.Num != 0)
	case Handle:
		t.add(path, fmt.Sprintf("%s#%d", v.Str, v.Gen))
		return strconv.AppendUint(b, v.Num, 10)
	case Pointer:
		t.add(path, "ptr")
		return fmt.Appendf(b, `"%#x"`, v.Num)
	case Text:
		t.add(path, "text")
		return appendString(b, v.Str)
	case Bytes:
		t.add(path, "bytes")
		return fmt.Appendf(b, `"%x"`, v.Str)
	case Flags:
		t.add(path, "flags")
		b = append(b, '[')
		for i, w := range v.Words {
			b = appendString(comma(b, i), w)
		}
		return append(b, ']')
	case Struct:
		return t.appendFields(b, v.Fields, path)
	case List:
		b = append(b, '[')
		for i := range v.Elems {
			b = t.appendValue(comma(b, i), &v.Elems[i], path+"."+strconv.Itoa(i))
		}
		return append(b, ']')
	case Lost:
		t.add(path, "unreadable")
		return fmt.Appendf(b, `{"unreadable":"%#x"}`, v.Num)
	}
	return appendString(b, v.Str)
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			q, err := json.Marshal(s)
			if err != nil {
				panic(err) // never fails for a string
			}
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
