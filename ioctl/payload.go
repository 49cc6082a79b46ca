package ioctl

import (
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file is correct:
//
// The kernel gets addresses as u64, which the garbage collector can't see. So all payloads are in the
// arena of the Cmd with the attributes, or in the attribute itself. A Cmd is a heap object, which Go
// never moves, and Run keeps it alive during the call. Only getInto points elsewhere. There a
// runtime.Pinner pins the slice, which also forces it off the goroutine's stack.
//
// The type parameters are instantiated with ABI structs and integers, which contain no Go
// pointers. Their alignment is at most 8, as that of an arena word. DriverData requires the
// same of other packages' types.

// A message is the header, followed by the attributes, as the kernel reads them.
type message struct {
	hdr   uapi.IbUverbsIoctlHdr
	attrs [maxAttrs]uapi.IbUverbsAttr
}

// The attributes must follow the header without a gap. Otherwise this constant overflows.
const _ = -(unsafe.Offsetof(message{}.attrs) - unsafe.Sizeof(uapi.IbUverbsIoctlHdr{}))

const attrSize = unsafe.Sizeof(uapi.IbUverbsAttr{})

// An attribute begins with 8 bytes that describe its data, which follows.
const _ = -(unsafe.Offsetof(uapi.IbUverbsAttr{}.Data) ^ 8)

// description returns the description of the attribute's data: its number, length, flags
// and element.
func description(a *uapi.IbUverbsAttr) uint64 { return *(*uint64)(unsafe.Pointer(a)) }

// address completes the header with the driver and the message's length.
func (c *Cmd) address(driver uint32) {
	h := &c.msg.hdr
	h.DriverId = driver
	h.Length = uint16(unsafe.Sizeof(*h) + uintptr(h.NumAttrs)*attrSize)
}

// alloc returns size bytes of zeroed arena.
func (c *Cmd) alloc(size uintptr) unsafe.Pointer {
	words := int((size + 7) / 8)
	if c.used+words > len(c.arena) {
		// Larger than any payload of a core verb: use a separate block.
		p := &make([]uint64, words)[0]
		c.pin(p)
		return unsafe.Pointer(p)
	}
	if words == 0 {
		return unsafe.Pointer(&c.arena[0])
	}
	p := &c.arena[c.used]
	c.used += words
	return unsafe.Pointer(p)
}

// in adds an input of size bytes and returns the memory to fill.
func (c *Cmd) in(id uint16, size uintptr) unsafe.Pointer {
	a := c.attr(id)
	if size > 0xffff {
		c.fail(errPayload)
		return c.alloc(size)
	}
	a.Len = uint16(size)
	if size <= unsafe.Sizeof(a.Data) {
		return unsafe.Pointer(&a.Data)
	}
	p := c.alloc(size)
	a.Data = uint64(uintptr(p))
	return p
}

// add adds an input of type T and returns it, zeroed. The caller fills it before Run.
func add[T any](c *Cmd, id uint16) *T {
	return (*T)(c.in(id, unsafe.Sizeof(*new(T))))
}

// put adds an input.
func put[T any](c *Cmd, id uint16, v T) { *add[T](c, id) = v }

// putAll adds an input of several values.
func putAll[T any](c *Cmd, id uint16, v []T) {
	copy(unsafe.Slice((*T)(c.in(id, uintptr(len(v))*unsafe.Sizeof(*new(T)))), len(v)), v)
}

// get adds an output of type T and returns it. The caller reads it after Run.
func get[T any](c *Cmd, id uint16) *T {
	size := unsafe.Sizeof(*new(T))
	p := c.alloc(size)
	a := c.attr(id)
	if size > 0xffff {
		c.fail(errPayload)
		return (*T)(p)
	}
	a.Len = uint16(size)
	a.Data = uint64(uintptr(p))
	return (*T)(p)
}

// getInto adds an output that the kernel writes into the slice. It is for payloads of which
// only the maximum size is known.
func getInto[T any](c *Cmd, id uint16, s []T) {
	a := c.attr(id)
	size := uintptr(len(s)) * unsafe.Sizeof(*new(T))
	if size == 0 || size > 0xffff {
		c.fail(errPayload)
		return
	}
	c.pin(&s[0])
	a.Len = uint16(size)
	a.Data = uint64(uintptr(unsafe.Pointer(&s[0])))
}

// request adds a write command's request.
func request[T any](c *Cmd) *T { return add[T](c, uapi.UVERBS_ATTR_CORE_IN) }

// requestWith adds a write command's request, followed by tail.
func requestWith[T any](c *Cmd, tail []byte) *T {
	size := unsafe.Sizeof(*new(T))
	p := c.in(uapi.UVERBS_ATTR_CORE_IN, size+uintptr(len(tail)))
	copy(unsafe.Slice((*byte)(unsafe.Add(p, size)), len(tail)), tail)
	return (*T)(p)
}

// Scratch returns a zeroed T that lives as long as the command, and its address. It is for
// the few requests that contain a pointer.
func Scratch[T any](c *Cmd) (*T, uint64) {
	p := c.alloc(unsafe.Sizeof(*new(T)))
	return (*T)(p), uint64(uintptr(p))
}
