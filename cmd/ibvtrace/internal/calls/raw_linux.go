//go:build amd64 || arm64

package calls

import (
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/ioctl"
)

// rawAttrs returns the attributes of an ioctl as passed to the kernel.
func rawAttrs(mem ioctl.Memory, v *ioctl.Call) []event.RawAttr {
	var out []event.RawAttr
	left := maxRaw
	for i := range v.Attrs {
		a := &v.Attrs[i]
		r := event.RawAttr{
			ID: a.Raw.AttrId, Len: a.Raw.Len, Flags: a.Raw.Flags,
			Elem: *a.Raw.AttrData.Reserved(), Data: a.Raw.Data,
		}
		if a.Spec != nil {
			r.Name = a.Spec.CName
		}
		if n := int(a.Raw.Len); n > 8 && n <= left {
			b := make([]byte, n)
			if mem(a.Raw.Data, b) == nil {
				r.Bytes = b
				left -= n
			}
		}
		out = append(out, r)
	}
	return out
}

// maxRaw bounds the bytes that are read for one call's raw attributes.
const maxRaw = 1 << 20
