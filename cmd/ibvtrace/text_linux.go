//go:build amd64 || arm64

package main

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// appendText appends the line that people read.
func (v *verb) appendText(b []byte) []byte {
	b = v.start.AppendFormat(b, "15:04:05.000000")
	b = fmt.Appendf(b, " [%d", v.pid)
	if v.tid != v.pid {
		b = fmt.Appendf(b, "/%d", v.tid)
	}
	b = fmt.Appendf(b, " %s] ", clean(v.thread))
	if v.device != "" {
		b = append(b, v.device...)
	} else {
		b = fmt.Appendf(b, "%d<%s>", v.fd, clean(v.path))
	}
	b = fmt.Appendf(b, " %s(", v.name())
	switch {
	case v.call == nil:
		b = append(b, v.unreadable.Error()...)
	case v.call.Err != nil:
		b = append(b, v.call.Err.Error()...)
	default:
		b = appendFields(b, v.call.Args())
	}
	b = append(b, ") = "...)
	if !v.returned {
		return append(b, '?')
	}
	switch {
	case v.errno >= 512:
		b = fmt.Appendf(b, "? %s", errnoName(v.errno))
	case v.errno != 0:
		b = fmt.Appendf(b, "-1 %s (%s)", errnoName(v.errno), errnoText(v.errno))
	default:
		b = v.appendResults(b)
	}
	return fmt.Appendf(b, " <%s>", micros(v.duration))
}

// appendResults appends a new object first: "qp 7 (qpn=0x11)".
func (v *verb) appendResults(b []byte) []byte {
	var out []ioctl.NamedValue
	if v.call != nil {
		out = v.call.Results()
	}
	if len(out) == 0 {
		return strconv.AppendInt(b, v.ret, 10)
	}
	switch out[0].Value.Kind() {
	case uapi.TypeHandle, uapi.TypeFD:
		b = fmt.Appendf(b, "%s ", out[0].Name)
		b = appendValue(b, &out[0].Value)
		out = out[1:]
	default:
		b = strconv.AppendInt(b, v.ret, 10)
	}
	if len(out) > 0 {
		b = append(b, " ("...)
		b = appendFields(b, out)
		b = append(b, ')')
	}
	return b
}

func micros(d time.Duration) string {
	us := float64(d) / float64(time.Microsecond)
	if us < 10 {
		return fmt.Sprintf("%.1f µs", us)
	}
	return fmt.Sprintf("%.0f µs", us)
}

func appendFields(b []byte, fields []ioctl.NamedValue) []byte {
	for i := range fields {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, fields[i].Name...)
		b = append(b, '=')
		b = appendValue(b, &fields[i].Value)
	}
	return b
}

func appendValue(b []byte, v *ioctl.Value) []byte {
	if v.Err != nil {
		return fmt.Appendf(b, "?%#x", v.Addr)
	}
	switch v.Kind() {
	case uapi.TypeUint:
		if v.Type.Hex {
			return fmt.Appendf(b, "%#x", v.Num)
		}
		return strconv.AppendUint(b, v.Num, 10)
	case uapi.TypeInt, uapi.TypeFD:
		return strconv.AppendInt(b, int64(v.Num), 10)
	case uapi.TypeHandle, uapi.TypeBool:
		return strconv.AppendUint(b, v.Num, 10)
	case uapi.TypeEnum, uapi.TypeFlags:
		return append(b, enumWord(v)...)
	case uapi.TypePtr:
		return fmt.Appendf(b, "%#x", v.Num)
	case uapi.TypeStruct, uapi.TypeUnion:
		b = append(b, '{')
		b = appendFields(b, v.Fields)
		return append(b, '}')
	case uapi.TypeArray:
		b = append(b, '[')
		for i := range v.Elems {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendValue(b, &v.Elems[i])
		}
		return append(b, ']')
	case uapi.TypeGID, uapi.TypeMAC, uapi.TypeString:
		return append(b, clean(bytesWord(v))...)
	}
	const most = 32
	if len(v.Bytes) > most {
		return fmt.Appendf(b, "%x...(%d bytes)", v.Bytes[:most], len(v.Bytes))
	}
	return fmt.Appendf(b, "%#x", v.Bytes)
}

// enumWord returns the names of an enumeration's value or flags, without what
// the kernel puts before all of them.
func enumWord(v *ioctl.Value) string {
	if v.Type.Enum == nil {
		return fmt.Sprintf("%#x", v.Num)
	}
	return v.Type.Enum.Short(v.Num)
}

// bytesWord returns the usual form of bytes that have one.
func bytesWord(v *ioctl.Value) string {
	switch v.Kind() {
	case uapi.TypeGID:
		if gid, ok := netip.AddrFromSlice(v.Bytes); ok {
			return gid.String()
		}
	case uapi.TypeMAC:
		var b []byte
		for i, x := range v.Bytes {
			if i > 0 {
				b = append(b, ':')
			}
			b = fmt.Appendf(b, "%02x", x)
		}
		return string(b)
	case uapi.TypeString:
		return string(v.Bytes)
	}
	return hex.EncodeToString(v.Bytes)
}
