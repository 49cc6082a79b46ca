package ioctl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uapi"
)

// Memory reads the memory of the process that called the ioctl. It fills b completely, or
// returns an error.
type Memory func(addr uint64, b []byte) error

// A Call is a decoded ioctl RDMA_VERBS_IOCTL of another process. Decoding trusts none of
// the data. Unknown data stays raw, and data that can't be read has an error.
type Call struct {
	Header uapi.IbUverbsIoctlHdr
	Object *uapi.Object       // nil if unknown
	Method *uapi.Method       // nil if unknown
	Write  *uapi.WriteCommand // the command of UVERBS_METHOD_INVOKE_WRITE; nil if unknown, or for other methods
	Attrs  []CallAttr
	Err    error // the reason if Attrs is incomplete, else nil

	attrs   uint64 // the attributes' address in the process
	written bool   // the call came through write(2), which has no attributes
}

// A CallAttr is an attribute of a Call.
type CallAttr struct {
	Raw  uapi.IbUverbsAttr
	Spec *uapi.Attr // nil if unknown
	In   *Value     // the process's input, or nil
	Out  *Value     // the kernel's output, or nil
}

const (
	hdrSize  = uapi.IbUverbsIoctlHdrAttrsOffset
	attrLen  = 16
	wordSize = 8 // the length of data inside the attribute itself

	// maxPayload limits the data read for one call. The kernel allows a page of attributes
	// with 64 KiB each. No verb uses a hundredth of that.
	maxPayload = 1 << 20
)

// Decode decodes a call and its inputs. The process must be stopped at the entry of the
// ioctl, whose third argument is addr. Decode fails only if it can't read the header.
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
	// The kernel reads no attributes if the header contradicts itself.
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

// DecodeResults decodes the call's outputs. The process must be stopped at the exit of the
// ioctl, and the ioctl must have succeeded.
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
		// Mandatory outputs are always written, but not always marked.
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
		// The pointer may be for an output. Decode the bytes nevertheless: no type is known.
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

// decodeInline decodes an object or a descriptor, which is in the attribute itself.
func decodeInline(spec *uapi.Attr, data uint64) Value {
	t := &uapi.Type{Kind: uapi.TypeHandle, Size: wordSize, Object: spec.Object}
	if spec.Kind == uapi.AttrFD || spec.Kind == uapi.AttrRawFD {
		t.Kind = uapi.TypeFD
	}
	return Value{Type: t, Num: data}
}

var errPayloadTooLong = errors.New("ioctl: too much data to read")

// decodePayload decodes the attribute's data as t, which may be nil. Small inputs are in
// the attribute itself, outputs never are.
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

// inType returns the type of the attribute's input. The types of a write command's request
// and of a driver's data depend on the verb. All others are in the schema.
func (c *Call) inType(a *CallAttr) *uapi.Type {
	switch {
	case c.Write != nil && a.Raw.AttrId == uapi.UVERBS_ATTR_CORE_IN:
		return structType(c.Write.Req)
	case a.Spec.CName == "UVERBS_ATTR_UHW_IN":
		driver := uapi.RdmaDriverId(c.Header.DriverId)
		in, _ := uapi.DriverData(driver, c.Verb())
		if rss := uapi.RSSData(driver); rss != nil && c.Verb() == "create_qp" && int(a.Raw.Len) == rss.Size {
			in = rss
		}
		return structType(in)
	}
	return a.Spec.Type
}

// outType is like inType, for the attribute's output.
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
