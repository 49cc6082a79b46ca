package ioctl

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/uapi"
)

const (
	maxAttrs   = 32  // the largest method, QP_CREATE on mlx5, has 21
	arenaWords = 192 // 1.5 KiB: the largest payload of a core verb is query_device_ex with 0.4 KiB
)

// A Cmd is an ioctl under construction, and the common part of all command types.
// NewCqCreate and the like reuse a Cmd that Release has freed. Pointers into a command are
// invalid after Release.
//
// The header, the attributes and the payloads are one heap object, so the addresses in the
// attributes are valid as long as the Cmd is referenced.
//
// A Cmd is not safe for concurrent use. It keeps the first error of its construction, which
// Run returns.
type Cmd struct {
	msg   message
	arena [arenaWords]uint64
	used  int // number of used words of the arena
	err   error
	pins  runtime.Pinner

	pinned bool // pins isn't empty
}

var (
	errTooManyAttrs = errors.New("ioctl: too many attributes in one command")
	errPayload      = errors.New("ioctl: payload is larger than an attribute can carry")
)

// spare is the last released Cmd, for the next call. A sync.Pool would cost about as much as
// encoding a command.
var spare atomic.Pointer[Cmd]

// begin begins a call of a method of an object type.
func begin(object, method uint16) *Cmd {
	c := spare.Swap(nil)
	if c == nil {
		c = new(Cmd)
	}
	c.msg.hdr = uapi.IbUverbsIoctlHdr{ObjectId: object, MethodId: method}
	return c
}

// beginWrite begins a write command, which UVERBS_METHOD_INVOKE_WRITE runs. The caller adds
// the request and the response.
func beginWrite(command uint32) *Cmd {
	c := begin(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
	put(c, uapi.UVERBS_ATTR_WRITE_CMD, uint64(command))
	return c
}

// Release frees the command for other calls.
func (c *Cmd) Release() {
	if c.pinned {
		c.pins.Unpin()
	}
	clear(c.arena[:c.used])
	c.used, c.err, c.pinned = 0, nil, false
	spare.Store(c)
}

// pin pins memory outside the Cmd until Release.
func (c *Cmd) pin(p any) {
	c.pins.Pin(p)
	c.pinned = true
}

// attr appends a mandatory attribute: a kernel without it refuses the call.
func (c *Cmd) attr(id uint16) *uapi.IbUverbsAttr {
	n := c.msg.hdr.NumAttrs
	if n == maxAttrs {
		c.fail(errTooManyAttrs)
		n--
	} else {
		c.msg.hdr.NumAttrs++
	}
	a := &c.msg.attrs[n]
	*a = uapi.IbUverbsAttr{AttrId: id, Flags: uapi.UVERBS_ATTR_F_MANDATORY}
	return a
}

func (c *Cmd) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// find returns the attribute with the id.
func (c *Cmd) find(id uint16) *uapi.IbUverbsAttr {
	for i := range c.msg.attrs[:c.msg.hdr.NumAttrs] {
		if c.msg.attrs[i].AttrId == id {
			return &c.msg.attrs[i]
		}
	}
	return nil
}

// handle adds an existing object.
func (c *Cmd) handle(id uint16, handle uint32) { c.attr(id).Data = uint64(handle) }

// newHandle adds an object to create. The kernel writes the object's handle, or the number of
// its file descriptor.
func (c *Cmd) newHandle(id uint16) *uint64 { return &c.attr(id).Data }

// fd adds a file descriptor, of an existing object or any other.
func (c *Cmd) fd(id uint16, fd int) { c.attr(id).Data = uint64(int64(fd)) }

// choose adds an input of the elem-th kind of the attribute.
func (c *Cmd) choose(id uint16, elem uint8, payload []byte) {
	putAll(c, id, payload)
	c.find(id).AttrData.EnumData().ElemId = elem
}

// None is the type of a missing request or response of a driver.
type None struct{}

// DriverData is the data that a driver adds to a command, in UVERBS_ATTR_UHW_IN and
// UVERBS_ATTR_UHW_OUT. Commands have methods for the drivers in the schema. For another
// driver, a provider specifies the types:
//
//	ioctl.DriverData[request, response]{Cmd: cmd.Cmd}
//
// The types must have the layout of the driver's structs, and contain no Go pointers.
type DriverData[Request, Response any] struct{ *Cmd }

// In adds the driver's request, zeroed. The caller fills it before Run.
func (d DriverData[Request, Response]) In() *Request {
	return add[Request](d.Cmd, uapi.UVERBS_ATTR_UHW_IN)
}

// Out adds the driver's response. The caller reads it after Run.
func (d DriverData[Request, Response]) Out() *Response {
	return get[Response](d.Cmd, uapi.UVERBS_ATTR_UHW_OUT)
}
