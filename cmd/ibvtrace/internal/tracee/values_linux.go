//go:build amd64 || arm64

package tracee

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Find returns the first readable value with one of the names, or nil.
func Find(fields []ioctl.NamedValue, names ...string) *ioctl.Value {
	for i := range fields {
		for _, n := range names {
			if fields[i].Name == n && fields[i].Value.Err == nil {
				return &fields[i].Value
			}
		}
	}
	return nil
}

// The following functions make values that no schema describes, each of the type that its name
// says.

func Number(name string, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeUint, Size: 8}, Num: v}}
}

func HexNumber(name string, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeUint, Size: 8, Hex: true}, Num: v}}
}

func Pointer(name string, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypePtr, Size: 8}, Num: v}}
}

func Descriptor(name string, fd int) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeFD, Size: 4}, Num: uint64(fd)}}
}

func Text(name, s string) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeString}, Bytes: []byte(s)}}
}

func Enum(name string, e *uapi.Enum, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeEnum, Size: 4, Enum: e}, Num: v}}
}

func Flags(name string, e *uapi.Enum, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeFlags, Size: 4, Enum: e}, Num: v}}
}

func Handle(name string, class uint16, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeHandle, Size: 4, Object: class}, Num: v}}
}

func Group(name string, fields ...ioctl.NamedValue) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeStruct}, Fields: fields}}
}

func List(name string, elems ...ioctl.Value) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeArray}, Elems: elems}}
}
