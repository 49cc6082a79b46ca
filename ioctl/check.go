package ioctl

import (
	"fmt"

	"github.com/goverbs/goverbs/uapi"
)

// check holds the command against the schema, once: a command that is run
// again unchanged was checked before.
func (c *Cmd) check(driver uint32) error {
	if c.err != nil || c.checked {
		return c.err
	}
	object := uapi.LookupObject(uapi.RdmaDriverId(driver), c.msg.hdr.ObjectId)
	if object == nil {
		return fmt.Errorf("ioctl: no object %#x", c.msg.hdr.ObjectId)
	}
	method := object.Method(c.msg.hdr.MethodId)
	if method == nil {
		return fmt.Errorf("ioctl: object %s has no method %#x", object.Name, c.msg.hdr.MethodId)
	}
	attrs := c.msg.attrs[:c.msg.hdr.NumAttrs]
	for i := range attrs {
		spec := method.Attr(attrs[i].AttrId)
		if spec == nil {
			return fmt.Errorf("ioctl: %s %s has no attribute %#x", object.Name, method.Name, attrs[i].AttrId)
		}
		if err := checkAttr(spec, &attrs[i]); err != nil {
			return fmt.Errorf("ioctl: %s %s: %w", object.Name, method.Name, err)
		}
	}
	for i := range method.Attrs {
		if spec := &method.Attrs[i]; spec.Mandatory && c.find(spec.ID) == nil {
			return fmt.Errorf("ioctl: %s %s: attribute %s is missing", object.Name, method.Name, spec.Name)
		}
	}
	c.checked = true
	return nil
}

func checkAttr(spec *uapi.Attr, a *uapi.IbUverbsAttr) error {
	n := int(a.Len)
	switch spec.Kind {
	case uapi.AttrIDR, uapi.AttrFD, uapi.AttrRawFD:
		if n != 0 {
			return fmt.Errorf("attribute %s takes a handle, not data", spec.Name)
		}
		return nil
	case uapi.AttrIDRArray:
		n /= 4
	case uapi.AttrEnumIn:
		elem := int(a.AttrData.EnumData().ElemId)
		if elem >= len(spec.Elems) {
			return fmt.Errorf("attribute %s has no element %d", spec.Name, elem)
		}
		spec = &spec.Elems[elem]
	}
	if n < spec.MinLen || spec.MaxLen >= 0 && !spec.ZeroTrailing && n > spec.MaxLen {
		return fmt.Errorf("attribute %s has length %d, want %d to %d", spec.Name, n, spec.MinLen, spec.MaxLen)
	}
	return nil
}
