//go:build amd64 || arm64

package trace

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Sizes of what the event files give at a time.
const (
	channelEventSize = 8
	asyncEventSize   = 16
	maxEventBytes    = 4096
)

// enterRead looks at a read that may be one of an event.
func (t *tracer) enterRead(th *thread, fd int, addr, n uint64) *call {
	f := th.proc.fds[fd]
	if f == nil || f.kind == fileUverbs || f.kind == fileCM {
		return nil
	}
	c := t.newCall(th, kindEvent, "read")
	c.fd, c.file = fd, f
	switch f.kind {
	case fileChannel:
		c.name = "ibv_get_cq_event"
	case fileAsync:
		c.name = "ibv_get_async_event"
	}
	c.finish = func(_ *tracer, th *thread, c *call) {
		if c.errno != 0 || c.ret <= 0 {
			return
		}
		b := make([]byte, min(uint64(c.ret), n, maxEventBytes))
		if err := readMemory(th.tid, addr, b); err != nil {
			c.results = []ioctl.NamedValue{{Name: "event", Value: ioctl.Value{Addr: addr, Err: err}}}
			return
		}
		kind := f.kind
		if kind == fileEvents {
			// One of which it was not seen how it was opened: their
			// events differ in size.
			if kind = fileAsync; len(b) < asyncEventSize {
				kind = fileChannel
			}
			f.kind = kind
		}
		switch {
		case kind == fileChannel && len(b) >= channelEventSize:
			c.name = "ibv_get_cq_event"
			c.results = f.eventObject(uapi.UVERBS_OBJECT_CQ, "cq", binary.NativeEndian.Uint64(b))
		case kind == fileAsync && len(b) >= asyncEventSize:
			c.name = "ibv_get_async_event"
			what := uint64(binary.NativeEndian.Uint32(b[8:]))
			c.results = []ioctl.NamedValue{enum("event_type", uapi.EnumIbEventType, what)}
			class, name := eventClass(uapi.IbEventType(what))
			c.results = append(c.results, f.eventObject(class, name, binary.NativeEndian.Uint64(b))...)
		default:
			c.results = []ioctl.NamedValue{{Name: "event", Value: ioctl.Value{Bytes: b}}}
		}
	}
	return c
}

// eventObject returns the object that an event is about, given as the program's
// own name for it.
func (f *file) eventObject(class uint16, name string, user uint64) []ioctl.NamedValue {
	switch {
	case class == 0:
		return []ioctl.NamedValue{number(name, user)}
	case f.parent != nil:
		if k, ok := f.parent.byUser(class, user); ok {
			return []ioctl.NamedValue{handle(name, class, k.handle), pointer("user_handle", user)}
		}
	}
	return []ioctl.NamedValue{pointer("user_handle", user)}
}

// eventClass returns the kind of object that an event is about: class 0 for a port
// or the device.
func eventClass(e uapi.IbEventType) (class uint16, name string) {
	switch e {
	case uapi.IB_EVENT_CQ_ERR:
		return uapi.UVERBS_OBJECT_CQ, "cq"
	case uapi.IB_EVENT_QP_FATAL, uapi.IB_EVENT_QP_REQ_ERR, uapi.IB_EVENT_QP_ACCESS_ERR, uapi.IB_EVENT_COMM_EST,
		uapi.IB_EVENT_SQ_DRAINED, uapi.IB_EVENT_PATH_MIG, uapi.IB_EVENT_PATH_MIG_ERR, uapi.IB_EVENT_QP_LAST_WQE_REACHED:
		return uapi.UVERBS_OBJECT_QP, "qp"
	case uapi.IB_EVENT_SRQ_ERR, uapi.IB_EVENT_SRQ_LIMIT_REACHED:
		return uapi.UVERBS_OBJECT_SRQ, "srq"
	case uapi.IB_EVENT_WQ_FATAL:
		return uapi.UVERBS_OBJECT_WQ, "wq"
	}
	return 0, "port"
}
