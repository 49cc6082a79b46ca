package ioctl

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/uapi"
)

const (
	maxAttrs   = 32  // the largest method, QP_CREATE with UHW, has 17
	arenaWords = 192 // 1.5 KiB: the largest payload of a core verb is query_device_ex with 0.4 KiB
)

// A Cmd is one ioctl in the making. The zero value is not usable: New and
// NewWrite take one from a pool, Release gives it back, and the pointers that
// In, Out, NewHandle and NewFD return are dead from then on.
//
// The header, the attributes and the payloads are one heap object, so that
// the addresses in the attributes hold for as long as the Cmd is referenced.
//
// A Cmd is not safe for concurrent use. Errors while building are kept and
// returned by Run.
type Cmd struct {
	msg     message
	arena   [arenaWords]uint64
	used    int // words of arena
	err     error
	checked bool
	pins    runtime.Pinner
}

var (
	errTooManyAttrs = errors.New("ioctl: too many attributes in one command")
	errPayload      = errors.New("ioctl: payload is larger than an attribute can carry")
)

var pool = sync.Pool{New: func() any { return new(Cmd) }}

// New begins a call of the method on the object; both are UVERBS_ or driver
// constants of package uapi.
func New(object, method uint16) *Cmd {
	c := pool.Get().(*Cmd)
	c.msg.hdr = uapi.IbUverbsIoctlHdr{ObjectId: object, MethodId: method}
	return c
}

// NewWrite begins a write command (IB_USER_VERBS_CMD_*, or
// IB_USER_VERBS_EX_CMD_* with IB_USER_VERBS_CMD_FLAG_EXTENDED set), carried
// by UVERBS_METHOD_INVOKE_WRITE. Its request is In(c, UVERBS_ATTR_CORE_IN),
// its response Out(c, UVERBS_ATTR_CORE_OUT).
func NewWrite(command uint32) *Cmd {
	c := New(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
	c.U64(uapi.UVERBS_ATTR_WRITE_CMD, uint64(command))
	return c
}

// Release returns the command to the pool.
func (c *Cmd) Release() {
	c.pins.Unpin()
	clear(c.arena[:c.used])
	c.used, c.err, c.checked = 0, nil, false
	pool.Put(c)
}

// attr appends an attribute, mandatory unless Optional is called: the kernel
// refuses a call with a mandatory attribute that it doesn't know.
func (c *Cmd) attr(id uint16) *uapi.IbUverbsAttr {
	n := c.msg.hdr.NumAttrs
	if n == maxAttrs {
		c.fail(errTooManyAttrs)
		n--
	} else {
		c.msg.hdr.NumAttrs++
	}
	c.checked = false
	a := &c.msg.attrs[n]
	*a = uapi.IbUverbsAttr{AttrId: id, Flags: uapi.UVERBS_ATTR_F_MANDATORY}
	return a
}

func (c *Cmd) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// find returns the attribute that was added under id.
func (c *Cmd) find(id uint16) *uapi.IbUverbsAttr {
	for i := range c.msg.attrs[:c.msg.hdr.NumAttrs] {
		if c.msg.attrs[i].AttrId == id {
			return &c.msg.attrs[i]
		}
	}
	return nil
}

// Optional lets a kernel that doesn't know the attribute pass over it.
func (c *Cmd) Optional(id uint16) {
	if a := c.find(id); a != nil {
		a.Flags &^= uapi.UVERBS_ATTR_F_MANDATORY
		return
	}
	c.fail(fmt.Errorf("ioctl: optional attribute %d was not added", id))
}

// U32 adds a 32-bit value or set of flags.
func (c *Cmd) U32(id uint16, v uint32) { *In[uint32](c, id) = v }

// U64 adds a 64-bit value, or a constant: the schema says which width.
func (c *Cmd) U64(id uint16, v uint64) { *In[uint64](c, id) = v }

// Handle adds an object that exists.
func (c *Cmd) Handle(id uint16, handle uint32) { c.attr(id).Data = uint64(handle) }

// NewHandle adds an object to be made. The kernel writes its handle.
func (c *Cmd) NewHandle(id uint16) *uint64 { return &c.attr(id).Data }

// Handles adds a list of objects that exist.
func (c *Cmd) Handles(id uint16, handles []uint32) {
	copy(InSlice[uint32](c, id, len(handles)), handles)
}

// FD adds a file descriptor: an object that exists, or a raw one.
func (c *Cmd) FD(id uint16, fd int) { c.attr(id).Data = uint64(int64(fd)) }

// NewFD adds a file descriptor to be made. The kernel writes its number.
func (c *Cmd) NewFD(id uint16) *uint64 { return &c.attr(id).Data }

// Enum selects the elem-th kind of payload for the attribute, which was added
// under id before.
func (c *Cmd) Enum(id uint16, elem uint8) {
	if a := c.find(id); a != nil {
		a.AttrData.EnumData().ElemId = elem
		return
	}
	c.fail(fmt.Errorf("ioctl: enum attribute %d was not added", id))
}

// Valid tells, after Run, whether the kernel wrote the output attribute.
func (c *Cmd) Valid(id uint16) bool {
	a := c.find(id)
	return a != nil && a.Flags&uapi.UVERBS_ATTR_F_VALID_OUTPUT != 0
}
