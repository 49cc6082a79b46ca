package event

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Fields converts decoded values to fields of an event. A program may pass an attribute twice,
// so Fields makes the names unique.
func Fields(values []ioctl.NamedValue) []Field {
	var out []Field
	for i := range values {
		name := values[i].Name
		has := func(f Field) bool { return f.Name == name }
		for n := 2; slices.ContainsFunc(out, has); n++ {
			name = values[i].Name + "_" + strconv.Itoa(n)
		}
		out = append(out, Field{name, ValueOf(&values[i].Value)})
	}
	return out
}

// ValueOf converts a decoded value to a value of an event.
func ValueOf(v *ioctl.Value) Value {
	if v.Err != nil {
		return Value{Form: Lost, Num: v.Addr}
	}
	switch v.Kind() {
	case uapi.TypeUint:
		if v.Type.Hex {
			return Value{Form: Hex, Num: v.Num}
		}
		return Value{Form: Uint, Num: v.Num}
	case uapi.TypeInt:
		return Value{Form: Int, Num: v.Num}
	case uapi.TypeFD:
		return Value{Form: FD, Num: v.Num}
	case uapi.TypeBool:
		return Value{Form: Bool, Num: min(v.Num, 1)}
	case uapi.TypePtr:
		return Value{Form: Pointer, Num: v.Num}
	case uapi.TypeHandle:
		return Value{Form: Handle, Num: v.Num, Str: ioctl.ObjectWord(v.Type.Object)}
	case uapi.TypeEnum:
		return Value{Form: Word, Str: enumWord(v)}
	case uapi.TypeFlags:
		if v.Num == 0 {
			return Value{Form: Flags}
		}
		return Value{Form: Flags, Words: strings.Split(enumWord(v), "|")}
	case uapi.TypeStruct, uapi.TypeUnion:
		return Value{Form: Struct, Fields: Fields(v.Fields)}
	case uapi.TypeArray:
		out := Value{Form: List}
		for i := range v.Elems {
			out.Elems = append(out.Elems, ValueOf(&v.Elems[i]))
		}
		return out
	case uapi.TypeGID:
		if gid, ok := netip.AddrFromSlice(v.Bytes); ok {
			return Value{Form: Word, Str: gid.String()}
		}
	case uapi.TypeMAC:
		return Value{Form: Word, Str: strings.ReplaceAll(fmt.Sprintf("% x", v.Bytes), " ", ":")}
	case uapi.TypeString:
		return Value{Form: Text, Str: string(v.Bytes)}
	}
	return Value{Form: Bytes, Str: string(v.Bytes)}
}

// enumWord returns the name of an enumeration's value, or the names of flags, without the
// kernel's common prefix.
func enumWord(v *ioctl.Value) string {
	if v.Type.Enum == nil {
		return fmt.Sprintf("%#x", v.Num)
	}
	return v.Type.Enum.Short(v.Num)
}
