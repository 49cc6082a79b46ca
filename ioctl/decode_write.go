package ioctl

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/uapi"
)

// Sizes of struct ib_uverbs_cmd_hdr and struct ib_uverbs_ex_cmd_hdr.
const (
	writeHdrSize   = 8
	writeExHdrSize = 16
)

// DecodeWrite decodes a command of the older write ABI: n bytes at addr, passed to write(2)
// on a uverbs file. It returns the equivalent Call of UVERBS_METHOD_INVOKE_WRITE. The caller
// must know the driver, because there is no ioctl header. The rules of [Decode] apply.
func DecodeWrite(addr, n uint64, driver uapi.RdmaDriverId, mem Memory) (*Call, error) {
	var b [writeHdrSize + writeExHdrSize]byte
	if n < writeHdrSize {
		return nil, fmt.Errorf("ioctl: a command of %d bytes, want at least %d", n, writeHdrSize)
	}
	if err := mem(addr, b[:writeHdrSize]); err != nil {
		return nil, fmt.Errorf("ioctl: command at %#x: %w", addr, err)
	}
	command := binary.NativeEndian.Uint32(b[:])
	inWords, outWords := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
	c := &Call{written: true}
	c.Header.ObjectId = uapi.UVERBS_OBJECT_DEVICE
	c.Header.MethodId = uapi.UVERBS_METHOD_INVOKE_WRITE
	c.Header.DriverId = uint32(driver)
	c.Object = uapi.LookupObject(driver, c.Header.ObjectId)
	c.Method = c.Object.Method(c.Header.MethodId)
	c.Write = uapi.LookupWriteCommand(command)
	c.add(uapi.UVERBS_ATTR_WRITE_CMD, 0, uint64(command))
	c.Attrs[0].In = &Value{Type: c.Attrs[0].Spec.Type, Num: uint64(command)}

	body, rest := addr+writeHdrSize, n-writeHdrSize
	var response uint64
	var core, coreOut, driverIn, driverOut uint64
	if command&uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED != 0 {
		if rest < writeExHdrSize {
			c.Err = fmt.Errorf("ioctl: an extended command of %d bytes, want at least %d", n, writeHdrSize+writeExHdrSize)
			return c, nil
		}
		ex := b[writeHdrSize:]
		if err := mem(body, ex); err != nil {
			c.Err = fmt.Errorf("ioctl: extended header at %#x: %w", body, err)
			return c, nil
		}
		body, rest = body+writeExHdrSize, rest-writeExHdrSize
		response = binary.NativeEndian.Uint64(ex)
		core, coreOut = 8*uint64(inWords), 8*uint64(outWords)
		driverIn = 8 * uint64(binary.NativeEndian.Uint16(ex[8:]))
		driverOut = 8 * uint64(binary.NativeEndian.Uint16(ex[10:]))
	} else {
		core, coreOut = rest, 4*uint64(outWords)
		if w := c.Write; w != nil {
			if w.UDATA && core > uint64(w.ReqLen) {
				core, driverIn = uint64(w.ReqLen), core-uint64(w.ReqLen)
			}
			if w.UDATA && coreOut > uint64(w.RespLen) {
				coreOut, driverOut = uint64(w.RespLen), coreOut-uint64(w.RespLen)
			}
			if w.Resp != nil {
				// Every request with a response begins with the response's address.
				var p [8]byte
				if err := mem(body, p[:]); err == nil {
					response = binary.NativeEndian.Uint64(p[:])
				}
			}
		}
	}
	// If the lengths contradict the call's length, the kernel refuses the command. Decode
	// the available bytes.
	core = min(core, rest)
	driverIn = min(driverIn, rest-core)
	c.add(uapi.UVERBS_ATTR_CORE_IN, core, body)
	if driverIn > 0 {
		c.add(uapi.UVERBS_ATTR_UHW_IN, driverIn, body+core)
	}
	if response != 0 && coreOut > 0 {
		c.add(uapi.UVERBS_ATTR_CORE_OUT, coreOut, response)
	}
	if response != 0 && driverOut > 0 {
		c.add(uapi.UVERBS_ATTR_UHW_OUT, driverOut, response+coreOut)
	}
	budget := maxPayload
	for i := range c.Attrs[1:] {
		c.decodeIn(&c.Attrs[i+1], mem, &budget)
	}
	return c, nil
}

// add adds the equivalent of an attribute of the ioctl.
func (c *Call) add(id uint16, n, data uint64) {
	// The header's fields can't express more. Further data of write(2) has no meaning.
	n = min(n, 1<<16-1)
	c.Attrs = append(c.Attrs, CallAttr{
		Raw:  uapi.IbUverbsAttr{AttrId: id, Len: uint16(n), Data: data},
		Spec: c.Method.Attr(id),
	})
}

// Written reports whether the call came through write(2).
func (c *Call) Written() bool { return c.written }
