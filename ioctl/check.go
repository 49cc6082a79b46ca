package ioctl

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/uapi"
)

// passed caches the shapes of commands that have passed the check, indexed by their upper 8 bits.
var passed [256]atomic.Uint64

// check checks the command against the schema, unless a command of this shape has passed
// before: programs repeat a few commands.
func (c *Cmd) check(driver uint32) error {
	if c.err != nil {
		return c.err
	}
	shape := c.shape(driver)
	place := &passed[shape>>56]
	if shape != 0 && place.Load() == shape {
		return nil
	}
	err := c.checkAll(driver)
	if err == nil {
		place.Store(shape)
	}
	return err
}

// shape returns a hash of everything that checkAll reads.
func (c *Cmd) shape(driver uint32) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := (uint64(driver)<<32 | uint64(c.msg.hdr.ObjectId)<<16 | uint64(c.msg.hdr.MethodId)) * odd
	attrs := c.msg.attrs[:c.msg.hdr.NumAttrs]
	for i := range attrs {
		h = (h ^ h>>32 ^ description(&attrs[i])) * odd
	}
	if c.isWrite() {
		if command := c.find(uapi.UVERBS_ATTR_WRITE_CMD); command != nil {
			h = (h ^ h>>32 ^ command.Data) * odd
		}
	}
	return h
}

// isWrite reports whether the method runs a write command.
func (c *Cmd) isWrite() bool {
	return c.msg.hdr.ObjectId == uapi.UVERBS_OBJECT_DEVICE && c.msg.hdr.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE
}

func (c *Cmd) checkAll(driver uint32) error {
	object := uapi.LookupObject(uapi.RdmaDriverId(driver), c.msg.hdr.ObjectId)
	if object == nil {
		return fmt.Errorf("ioctl: no object %#x", c.msg.hdr.ObjectId)
	}
	method := object.Method(c.msg.hdr.MethodId)
	if method == nil {
		return fmt.Errorf("ioctl: object %s has no method %#x", object.Name, c.msg.hdr.MethodId)
	}
	if err := c.checkMethod(method); err != nil {
		return fmt.Errorf("ioctl: %s %s: %w", object.Name, method.Name, err)
	}
	verb := method.Verb
	if c.isWrite() {
		id := c.find(uapi.UVERBS_ATTR_WRITE_CMD).Data
		w := uapi.LookupWriteCommand(uint32(id))
		if w == nil || id>>32 != 0 {
			return fmt.Errorf("ioctl: no write command %#x", id)
		}
		if err := c.checkWrite(w); err != nil {
			return fmt.Errorf("ioctl: %s: %w", w.CName, err)
		}
		verb = w.Name
	}
	driverData := c.find(uapi.UVERBS_ATTR_UHW_IN) != nil || c.find(uapi.UVERBS_ATTR_UHW_OUT) != nil
	// A driver's own methods have other attributes under these numbers.
	if uhw := method.Attr(uapi.UVERBS_ATTR_UHW_IN); driverData && uhw != nil && uhw.CName == "UVERBS_ATTR_UHW_IN" {
		in, out := uapi.DriverData(uapi.RdmaDriverId(driver), verb)
		if verb == "create_qp" && c.rss(driver) {
			in = uapi.RSSData(uapi.RdmaDriverId(driver))
		}
		if err := c.checkDriverData(in, out); err != nil {
			return fmt.Errorf("ioctl: %s: %w", verb, err)
		}
	}
	return nil
}

// checkMethod checks the attributes against the method's.
func (c *Cmd) checkMethod(method *uapi.Method) error {
	attrs := c.msg.attrs[:c.msg.hdr.NumAttrs]
	for i := range attrs {
		spec := method.Attr(attrs[i].AttrId)
		if spec == nil {
			return fmt.Errorf("no attribute %#x", attrs[i].AttrId)
		}
		if c.find(spec.ID) != &attrs[i] {
			return fmt.Errorf("attribute %s appears twice", spec.Name)
		}
		if err := checkAttr(spec, &attrs[i]); err != nil {
			return err
		}
	}
	for i := range method.Attrs {
		if spec := &method.Attrs[i]; spec.Mandatory && c.find(spec.ID) == nil {
			return fmt.Errorf("attribute %s is missing", spec.Name)
		}
	}
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

// checkWrite checks the request and the response against the write command's.
func (c *Cmd) checkWrite(w *uapi.WriteCommand) error {
	if err := checkStruct("request", w.Req, w.ReqLen, c.find(uapi.UVERBS_ATTR_CORE_IN)); err != nil {
		return err
	}
	if err := checkStruct("response", w.Resp, w.RespLen, c.find(uapi.UVERBS_ATTR_CORE_OUT)); err != nil {
		return err
	}
	driver := c.find(uapi.UVERBS_ATTR_UHW_IN) != nil || c.find(uapi.UVERBS_ATTR_UHW_OUT) != nil
	if driver && !w.Ex && !w.UDATA {
		return errors.New("the command takes no driver data")
	}
	return nil
}

// checkStruct checks a payload against its struct. The kernel needs at least least bytes of it.
func checkStruct(side string, s *uapi.Struct, least int, a *uapi.IbUverbsAttr) error {
	switch {
	case s == nil && a == nil:
		return nil
	case s == nil:
		return fmt.Errorf("the command takes no %s", side)
	case a == nil:
		return fmt.Errorf("the %s is missing", side)
	}
	if n := int(a.Len); n < least || n > s.Size && !open(s) {
		return fmt.Errorf("the %s has length %d, want %d to %d", side, n, least, s.Size)
	}
	return nil
}

// open reports whether the struct ends with an array of variable length.
func open(s *uapi.Struct) bool {
	if len(s.Fields) == 0 {
		return false
	}
	f := &s.Fields[len(s.Fields)-1]
	return f.Size == 0 || f.Type.Kind == uapi.TypeStruct && open(f.Type.Struct)
}

// rss reports whether a create_qp creates a QP without queues, which spreads packets over an
// indirection table. Its driver data is different.
func (c *Cmd) rss(driver uint32) bool {
	s, a := uapi.RSSData(uapi.RdmaDriverId(driver)), c.find(uapi.UVERBS_ATTR_UHW_IN)
	return s != nil && a != nil && int(a.Len) == s.Size && c.find(uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE) != nil
}

// checkDriverData checks the driver's data against its structs. Both are nil if the driver
// isn't in the schema.
func (c *Cmd) checkDriverData(in, out *uapi.Struct) error {
	if in == nil && out == nil {
		return nil
	}
	for _, side := range []struct {
		name string
		s    *uapi.Struct
		a    *uapi.IbUverbsAttr
	}{
		{"request", in, c.find(uapi.UVERBS_ATTR_UHW_IN)},
		{"response", out, c.find(uapi.UVERBS_ATTR_UHW_OUT)},
	} {
		switch {
		case side.a == nil:
		case side.s == nil:
			return fmt.Errorf("the driver takes no %s", side.name)
		case int(side.a.Len) != side.s.Size && (int(side.a.Len) < side.s.Size || !open(side.s)):
			return fmt.Errorf("the driver's %s has length %d, want %d", side.name, side.a.Len, side.s.Size)
		}
	}
	return nil
}
