//go:build amd64 || arm64

package calls

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Sizes of the events in event files.
const (
	channelEventSize = 8
	asyncEventSize   = 16
	maxEventBytes    = 4096
)

// EnterRead handles a read, which may be of an event.
func (t *Decoder) EnterRead(th *tracee.Thread, fd int, addr, n uint64) *tracee.Call {
	f := t.File(th, fd)
	if f == nil || f.Kind == tracee.FileUverbs || f.Kind == tracee.FileCM {
		return nil
	}
	c := t.NewCall(th, tracee.KindEvent, "read")
	c.FD, c.File = fd, f
	switch f.Kind {
	case tracee.FileChannel:
		c.Name = "ibv_get_cq_event"
	case tracee.FileAsync:
		c.Name = "ibv_get_async_event"
	}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno != 0 || c.Ret <= 0 {
			return
		}
		b := make([]byte, min(uint64(c.Ret), n, maxEventBytes))
		if err := t.Memory(th)(addr, b); err != nil {
			c.Results = []ioctl.NamedValue{{Name: "event", Value: ioctl.Value{Addr: addr, Err: err}}}
			return
		}
		kind := f.Kind
		if kind == tracee.FileEvents {
			// The file's open was not traced. The size of the event tells its
			// kind.
			if kind = tracee.FileAsync; len(b) < asyncEventSize {
				kind = tracee.FileChannel
			}
			f.Kind = kind
		}
		switch {
		case kind == tracee.FileChannel && len(b) >= channelEventSize:
			c.Name = "ibv_get_cq_event"
			c.Results = eventObject(f, uapi.UVERBS_OBJECT_CQ, "cq", binary.NativeEndian.Uint64(b))
		case kind == tracee.FileAsync && len(b) >= asyncEventSize:
			c.Name = "ibv_get_async_event"
			what := uint64(binary.NativeEndian.Uint32(b[8:]))
			c.Results = []ioctl.NamedValue{tracee.Enum("event_type", uapi.EnumIbEventType, what)}
			class, name := eventClass(uapi.IbEventType(what))
			c.Results = append(c.Results, eventObject(f, class, name, binary.NativeEndian.Uint64(b))...)
		default:
			c.Results = []ioctl.NamedValue{{Name: "event", Value: ioctl.Value{Bytes: b}}}
		}
	}
	return c
}

// eventObject returns the object that an event is about. user is its user_handle.
func eventObject(f *tracee.File, class uint16, name string, user uint64) []ioctl.NamedValue {
	switch {
	case class == 0:
		return []ioctl.NamedValue{tracee.Number(name, user)}
	case f.Parent != nil:
		if k, ok := f.Parent.ByUser(class, user); ok {
			return []ioctl.NamedValue{tracee.Handle(name, class, k.Handle), tracee.Pointer("user_handle", user)}
		}
	}
	return []ioctl.NamedValue{tracee.Pointer("user_handle", user)}
}

// eventClass returns the class of the object that an event is about. It is 0 for a port or the
// device.
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
