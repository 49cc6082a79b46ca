package ioctl

import (
	"errors"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/uapi"
)

const (
	maxAttrs   = 32  // the largest method, QP_CREATE on mlx5, has 21
	arenaWords = 192 // 1.5 KiB: the largest payload of a core verb is query_device_ex with 0.4 KiB
)

// A Cmd is one ioctl in the making, and what the types of all commands have in
// common. NewCqCreate and its like take one from a pool; Release gives it back, and
// the pointers into it are dead from then on.
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

// begin begins a call of the method on the object.
func begin(object, method uint16) *Cmd {
	c := pool.Get().(*Cmd)
	c.msg.hdr = uapi.IbUverbsIoctlHdr{ObjectId: object, MethodId: method}
	return c
}

// beginWrite begins a write command, which UVERBS_METHOD_INVOKE_WRITE carries. Its
// request and its response follow.
func beginWrite(command uint32) *Cmd {
	c := begin(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
	put(c, uapi.UVERBS_ATTR_WRITE_CMD, uint64(command))
	return c
}

// Release returns the command to the pool.
func (c *Cmd) Release() {
	c.pins.Unpin()
	clear(c.arena[:c.used])
	c.used, c.err, c.checked = 0, nil, false
	pool.Put(c)
}

// attr appends an attribute. It is mandatory: the kernel refuses a call with an
// attribute that it doesn't know.
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

// handle adds an object that exists.
func (c *Cmd) handle(id uint16, handle uint32) { c.attr(id).Data = uint64(handle) }

// newHandle adds an object to be made. The kernel writes its handle, or the number of
// its file descriptor.
func (c *Cmd) newHandle(id uint16) *uint64 { return &c.attr(id).Data }

// fd adds a file descriptor: an object that exists, or a raw one.
func (c *Cmd) fd(id uint16, fd int) { c.attr(id).Data = uint64(int64(fd)) }

// choose adds an input of the elem-th kind that the attribute has.
func (c *Cmd) choose(id uint16, elem uint8, payload []byte) {
	putAll(c, id, payload)
	c.find(id).AttrData.EnumData().ElemId = elem
}

// None is the request or the response that a driver doesn't have.
type None struct{}

// DriverData is what a driver adds to a command, in UVERBS_ATTR_UHW_IN and
// UVERBS_ATTR_UHW_OUT. The commands have it for the drivers that the schema knows;
// for another one, a provider names its types:
//
//	ioctl.DriverData[request, response]{Cmd: cmd.Cmd}
//
// The types must be laid out as the driver's structs, and contain no Go pointers.
type DriverData[Request, Response any] struct{ *Cmd }

// In adds the driver's request, zeroed, to be filled before Run.
func (d DriverData[Request, Response]) In() *Request {
	return add[Request](d.Cmd, uapi.UVERBS_ATTR_UHW_IN)
}

// Out adds the driver's response, to be read after Run.
func (d DriverData[Request, Response]) Out() *Response {
	return get[Response](d.Cmd, uapi.UVERBS_ATTR_UHW_OUT)
}
