package ioctl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uapi"
)

// Memory reads the memory of a process that called the ioctl: all of b, or it
// returns an error.
type Memory func(addr uint64, b []byte) error

// A Call is a decoded ioctl RDMA_VERBS_IOCTL of another process. Nothing in it
// is trusted: what is unknown stays raw, what cannot be read has an error.
type Call struct {
	Header uapi.IbUverbsIoctlHdr
	Object *uapi.Object       // nil: unknown
	Method *uapi.Method       // nil: unknown
	Write  *uapi.WriteCommand // what UVERBS_METHOD_INVOKE_WRITE runs; nil: unknown, or another method
	Attrs  []CallAttr
	Err    error // why Attrs lacks some, or nil

	attrs   uint64 // where the process has them
	written bool   // by write(2): there are none
}

// A CallAttr is an attribute of a Call.
type CallAttr struct {
	Raw  uapi.IbUverbsAttr
	Spec *uapi.Attr // nil: unknown
	In   *Value     // what the process gave, or nil
	Out  *Value     // what the kernel wrote, or nil
}

const (
	hdrSize  = uapi.IbUverbsIoctlHdrAttrsOffset
	attrLen  = 16
	wordSize = 8 // what fits into the attribute itself

	// maxPayload bounds what is read for one call. The kernel allows a page
	// of attributes with 64 KiB each; no verb has a hundredth of that.
	maxPayload = 1 << 20
)

// Decode reads a call and its inputs. It must run while the process is
// stopped at the ioctl's entry; addr is the ioctl's third argument. It fails
// only if there is no header to be read.
func Decode(addr uint64, mem Memory) (*Call, error) {
	var b [hdrSize]byte
	if err := mem(addr, b[:]); err != nil {
		return nil, fmt.Errorf("ioctl: header at %#x: %w", addr, err)
	}
	c := &Call{Header: parseHeader(b[:]), attrs: addr + hdrSize}
	h := &c.Header
	driver := uapi.RdmaDriverId(h.DriverId)
	if c.Object = uapi.LookupObject(driver, h.ObjectId); c.Object != nil {
		c.Method = c.Object.Method(h.MethodId)
	}
	// The kernel reads no attribute of a header that contradicts itself.
	if want := hdrSize + attrLen*int(h.NumAttrs); int(h.Length) != want {
		c.Err = fmt.Errorf("ioctl: header has length %d, want %d for %d attributes", h.Length, want, h.NumAttrs)
		return c, nil
	}
	raw := make([]byte, attrLen*int(h.NumAttrs))
	if err := mem(c.attrs, raw); err != nil {
		c.Err = fmt.Errorf("ioctl: attributes at %#x: %w", c.attrs, err)
		return c, nil
	}
	for ; len(raw) > 0; raw = raw[attrLen:] {
		c.Attrs = append(c.Attrs, CallAttr{Raw: parseAttr(raw)})
	}
	for i := range c.Attrs {
		a := &c.Attrs[i]
		if c.Method != nil {
			a.Spec = c.Method.Attr(a.Raw.AttrId)
		}
		if c.isInvokeWrite() && a.Raw.AttrId == uapi.UVERBS_ATTR_WRITE_CMD && a.Raw.Len <= wordSize {
			c.Write = uapi.LookupWriteCommand(uint32(a.Raw.Data))
		}
	}
	budget := maxPayload
	for i := range c.Attrs {
		c.decodeIn(&c.Attrs[i], mem, &budget)
	}
	return c, nil
}

func (c *Call) isInvokeWrite() bool {
	return c.Header.ObjectId == uapi.UVERBS_OBJECT_DEVICE && c.Header.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE
}

// DecodeResults reads what the kernel wrote. It must run when the process is
// stopped at the ioctl's exit, and only if the ioctl succeeded.
func (c *Call) DecodeResults(mem Memory) {
	budget := maxPayload
	for i := range c.Attrs {
		a := &c.Attrs[i]
		if a.Spec == nil {
			continue
		}
		isNew := a.Spec.Access == uapi.AccessNew
		if a.Spec.Kind != uapi.AttrPtrOut && !isNew {
			continue
		}
		if c.written {
			v := c.decodePayload(a, c.outType(a), mem, &budget, false)
			a.Out = &v
			continue
		}
		// The kernel changes the flags and, for a new object, the data.
		var b [attrLen]byte
		if err := mem(c.attrs+uint64(i*attrLen), b[:]); err != nil {
			a.Out = &Value{Err: err}
			continue
		}
		now := parseAttr(b[:])
		if isNew {
			v := decodeInline(a.Spec, now.Data)
			a.Out = &v
			continue
		}
		a.Raw.Flags = now.Flags
		// Mandatory outputs are always written, and not always marked.
		if a.Spec.Mandatory || now.Flags&uapi.UVERBS_ATTR_F_VALID_OUTPUT != 0 {
			v := c.decodePayload(a, c.outType(a), mem, &budget, false)
			a.Out = &v
		}
	}
}

func (c *Call) decodeIn(a *CallAttr, mem Memory, budget *int) {
	var v Value
	switch {
	case a.Spec == nil:
		// The bytes behind the pointer may be room for an output; shown
		// all the same, there is nothing better.
		v = c.decodePayload(a, nil, mem, budget, true)
		if a.Raw.Len == 0 {
			v = Value{Type: &uapi.Type{Kind: uapi.TypeUint, Size: 8, Hex: true}, Num: a.Raw.Data}
		}
	case a.Spec.Kind == uapi.AttrPtrIn:
		v = c.decodePayload(a, c.inType(a), mem, budget, true)
	case a.Spec.Kind == uapi.AttrEnumIn:
		elem := a.Raw.AttrData.EnumData().ElemId
		var t *uapi.Type
		if int(elem) < len(a.Spec.Elems) {
			t = a.Spec.Elems[elem].Type
		}
		v = c.decodePayload(a, t, mem, budget, true)
	case a.Spec.Kind == uapi.AttrIDRArray:
		handle := uapi.Type{Kind: uapi.TypeHandle, Size: 4, Object: a.Spec.Object}
		v = c.decodePayload(a, &uapi.Type{Kind: uapi.TypeArray, Elem: &handle, Len: -1}, mem, budget, true)
	case a.Spec.Kind == uapi.AttrPtrOut || a.Spec.Access == uapi.AccessNew:
		return
	default:
		v = decodeInline(a.Spec, a.Raw.Data)
	}
	a.In = &v
}

// decodeInline decodes an object or a descriptor, which is in the attribute.
func decodeInline(spec *uapi.Attr, data uint64) Value {
	t := &uapi.Type{Kind: uapi.TypeHandle, Size: wordSize, Object: spec.Object}
	if spec.Kind == uapi.AttrFD || spec.Kind == uapi.AttrRawFD {
		t.Kind = uapi.TypeFD
	}
	return Value{Type: t, Num: data}
}

var errPayloadTooLong = errors.New("ioctl: too much data to read")

// decodePayload decodes the attribute's data as t, which may be nil. Small
// inputs are in the attribute, outputs never.
func (c *Call) decodePayload(a *CallAttr, t *uapi.Type, mem Memory, budget *int, in bool) Value {
	n := int(a.Raw.Len)
	if in && n <= wordSize && !c.written {
		var b [wordSize]byte
		binary.NativeEndian.PutUint64(b[:], a.Raw.Data)
		return decodeValue(t, b[:n])
	}
	if *budget -= n; *budget < 0 {
		return Value{Addr: a.Raw.Data, Err: errPayloadTooLong}
	}
	b := make([]byte, n)
	if err := mem(a.Raw.Data, b); err != nil {
		return Value{Addr: a.Raw.Data, Err: err}
	}
	return decodeValue(t, b)
}

func parseHeader(b []byte) uapi.IbUverbsIoctlHdr {
	return uapi.IbUverbsIoctlHdr{
		Length:    binary.NativeEndian.Uint16(b),
		ObjectId:  binary.NativeEndian.Uint16(b[2:]),
		MethodId:  binary.NativeEndian.Uint16(b[4:]),
		NumAttrs:  binary.NativeEndian.Uint16(b[6:]),
		Reserved1: binary.NativeEndian.Uint64(b[8:]),
		DriverId:  binary.NativeEndian.Uint32(b[16:]),
		Reserved2: binary.NativeEndian.Uint32(b[20:]),
	}
}

func parseAttr(b []byte) uapi.IbUverbsAttr {
	a := uapi.IbUverbsAttr{
		AttrId: binary.NativeEndian.Uint16(b),
		Len:    binary.NativeEndian.Uint16(b[2:]),
		Flags:  binary.NativeEndian.Uint16(b[4:]),
		Data:   binary.NativeEndian.Uint64(b[8:]),
	}
	*a.AttrData.Reserved() = binary.NativeEndian.Uint16(b[6:])
	return a
}

// inType returns how to read what the attribute brings: a write command's
// request and a driver's part depend on the verb, all else is in the schema.
func (c *Call) inType(a *CallAttr) *uapi.Type {
	switch {
	case c.Write != nil && a.Raw.AttrId == uapi.UVERBS_ATTR_CORE_IN:
		return structType(c.Write.Req)
	case a.Spec.CName == "UVERBS_ATTR_UHW_IN":
		in, _ := uapi.DriverData(uapi.RdmaDriverId(c.Header.DriverId), c.Verb())
		return structType(in)
	}
	return a.Spec.Type
}

// outType is inType for what the kernel writes.
func (c *Call) outType(a *CallAttr) *uapi.Type {
	switch {
	case c.Write != nil && a.Raw.AttrId == uapi.UVERBS_ATTR_CORE_OUT:
		return structType(c.Write.Resp)
	case a.Spec.CName == "UVERBS_ATTR_UHW_OUT":
		_, out := uapi.DriverData(uapi.RdmaDriverId(c.Header.DriverId), c.Verb())
		return structType(out)
	}
	return a.Spec.Type
}

func structType(s *uapi.Struct) *uapi.Type {
	if s == nil {
		return nil
	}
	return &uapi.Type{Kind: uapi.TypeStruct, Size: s.Size, Struct: s}
}
