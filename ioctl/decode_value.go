package ioctl

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// A Value is decoded data. Type determines which fields are set.
type Value struct {
	Type   *uapi.Type   // nil for raw bytes
	Num    uint64       // integers of all kinds; TypeInt is sign-extended
	Bytes  []byte       // TypeBytes, TypeGID, TypeMAC, TypeString
	Fields []NamedValue // TypeStruct; TypeUnion: every view of the same bytes
	Elems  []Value      // TypeArray

	Addr uint64 // the unreadable address
	Err  error  // why the data could not be read; then only Err and Addr are set
}

// A NamedValue is a value with a name for users.
type NamedValue struct {
	Name  string
	Value Value
}

// Kind returns the kind of the type.
func (v *Value) Kind() uapi.TypeKind {
	if v.Type == nil {
		return uapi.TypeBytes
	}
	return v.Type.Kind
}

// decodeValue decodes b as a t, which may be nil. It accepts any b. Data that is too short
// for an integer is decoded as bytes. A struct lacks the fields beyond the end of b.
func decodeValue(t *uapi.Type, b []byte) Value {
	if t == nil {
		return Value{Bytes: b}
	}
	switch t.Kind {
	case uapi.TypeUint, uapi.TypeInt, uapi.TypeBool, uapi.TypeEnum, uapi.TypeFlags,
		uapi.TypeHandle, uapi.TypeFD, uapi.TypePtr:
		if t.Size > len(b) {
			return Value{Bytes: b}
		}
		num, ok := decodeInteger(t, b)
		if !ok {
			return Value{Bytes: b}
		}
		return Value{Type: t, Num: num}
	case uapi.TypeStruct, uapi.TypeUnion:
		if t.Struct == nil {
			return Value{Bytes: b}
		}
		return Value{Type: t, Fields: decodeFields(t.Struct, b)}
	case uapi.TypeArray:
		return decodeArray(t, b)
	case uapi.TypeString:
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
		return Value{Type: t, Bytes: b}
	case uapi.TypeGID, uapi.TypeMAC:
		if t.Size != len(b) {
			return Value{Bytes: b}
		}
		return Value{Type: t, Bytes: b}
	}
	return Value{Bytes: b}
}

// decodeInteger decodes an integer of t's size, or of the size of b if t has none.
func decodeInteger(t *uapi.Type, b []byte) (uint64, bool) {
	size := t.Size
	if size == 0 {
		size = len(b)
	}
	var order binary.ByteOrder = binary.NativeEndian
	if t.BigEndian {
		order = binary.BigEndian
	}
	var u uint64
	switch size {
	case 1:
		u = uint64(b[0])
	case 2:
		u = uint64(order.Uint16(b))
	case 4:
		u = uint64(order.Uint32(b))
	case 8:
		u = order.Uint64(b)
	default:
		return 0, false
	}
	if t.Kind == uapi.TypeInt || t.Kind == uapi.TypeFD {
		shift := 64 - 8*uint(size)
		u = uint64(int64(u<<shift) >> shift)
	}
	return u, true
}

func decodeFields(s *uapi.Struct, b []byte) []NamedValue {
	var out []NamedValue
	for i := range s.Fields {
		f := &s.Fields[i]
		end := f.Offset + f.Size
		if f.Size == 0 {
			end = len(b)
		}
		if f.Offset >= end || end > len(b) {
			continue
		}
		if isFiller(f.CName) && isZero(b[f.Offset:end]) {
			continue
		}
		out = append(out, NamedValue{fieldName(f), decodeValue(&f.Type, b[f.Offset:end])})
	}
	if s.Size > 0 && len(b) > s.Size && !hasFlexible(s) {
		out = append(out, NamedValue{"beyond_" + s.CName, Value{Bytes: b[s.Size:]}})
	}
	return out
}

// isFiller reports whether a field is reserved. Such a field is shown only if it isn't zero.
func isFiller(cname string) bool {
	return cname == "pad" || strings.HasPrefix(cname, "reserved") || strings.HasSuffix(cname, "_reserved") || strings.HasPrefix(cname, "rsvd")
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func hasFlexible(s *uapi.Struct) bool {
	for i := range s.Fields {
		if s.Fields[i].Size == 0 {
			return true
		}
	}
	return false
}

func decodeArray(t *uapi.Type, b []byte) Value {
	if t.Elem == nil || t.Elem.Size <= 0 {
		return Value{Bytes: b}
	}
	v := Value{Type: t}
	for n := t.Len; n != 0 && len(b) >= t.Elem.Size; n-- {
		v.Elems = append(v.Elems, decodeValue(t.Elem, b[:t.Elem.Size]))
		b = b[t.Elem.Size:]
	}
	return v
}

// DecodeStruct decodes b as the struct. It accepts any b: fields beyond the end of b are missing.
func DecodeStruct(s *uapi.Struct, b []byte) []NamedValue { return decodeFields(s, b) }
