package uapi

import (
	"math/bits"
	"strconv"
	"strings"
)

// An Enum has the names of an enumeration's values, in the order of the header.
type Enum struct {
	CName  string // "ib_uverbs_qp_type"
	Prefix string // the common prefix of the values' names: "IB_UVERBS_QPT_"
	Flags  bool   // the values are bits that can be combined
	Values []EnumValue
}

// An EnumValue is one value of an Enum.
type EnumValue struct {
	Value uint64
	CName string // "IB_UVERBS_QPT_RC"
}

// CNameOf returns the kernel's name of a value, or "" if it has none. If a value has several
// names, CNameOf returns the first in the header.
func (e *Enum) CNameOf(v uint64) string {
	for i := range e.Values {
		if e.Values[i].Value == v {
			return e.Values[i].CName
		}
	}
	return ""
}

// Format returns the kernel's name of a value. For a combination of flags, it returns the
// names of all bits, joined with "|". A value without a name is formatted as a number.
func (e *Enum) Format(v uint64) string { return e.format(v, "") }

// Short is like Format, but leaves out the common prefix of the names: "RC",
// "LOCAL_WRITE|REMOTE_READ".
func (e *Enum) Short(v uint64) string { return e.format(v, e.Prefix) }

func (e *Enum) format(v uint64, prefix string) string {
	if name := e.CNameOf(v); name != "" && (!e.Flags || bits.OnesCount64(v) == 1) {
		return strings.TrimPrefix(name, prefix)
	}
	if !e.Flags {
		return strconv.FormatUint(v, 10)
	}
	if v == 0 {
		return "0"
	}
	var b strings.Builder
	for i := range e.Values {
		bit := e.Values[i].Value
		if bits.OnesCount64(bit) == 1 && v&bit != 0 {
			b.WriteString(strings.TrimPrefix(e.Values[i].CName, prefix))
			b.WriteByte('|')
			v &^= bit
		}
	}
	if v != 0 {
		return b.String() + "0x" + strconv.FormatUint(v, 16)
	}
	return b.String()[:b.Len()-1]
}
