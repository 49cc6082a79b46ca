//go:build amd64 || arm64

package trace

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

var eventKinds = [...]event.Kind{
	kindControl: event.Control, kindData: event.Data, kindCM: event.CM, kindEvent: event.Async, kindMap: event.Map,
	kindOpen: event.Open, kindClose: event.Close, kindExit: event.Exit, kindNote: event.Note,
}

// event returns what is said of a call.
func (c *call) event() *event.Event {
	e := &event.Event{
		Time: c.start, PID: c.pid, TID: c.tid, Comm: c.comm,
		Kind: eventKinds[c.kind], Verb: c.name,
		FD: c.fd, Path: c.path,
		Args: event.Fields(c.args), Out: event.Fields(c.results),
		Returned: c.returned, Ret: c.ret, Duration: c.duration, Timed: c.timed,
		Why: c.why, Raw: c.raw,
	}
	if c.kind == kindControl && c.verb != nil {
		e.Verb = "ibv_" + c.name
	}
	if c.problem != nil {
		e.Problem = c.problem.Error()
	}
	if c.errno != 0 {
		e.Errno, e.Error = errnoName(c.errno), errnoText(c.errno)
	}
	if v := c.verb; v != nil {
		e.Object, e.Method, e.Driver = v.ObjectName(), v.MethodName(), v.Driver()
	}
	f := c.file
	if f == nil {
		return e
	}
	e.Device, e.File = f.device, f.id
	if e.Driver == "" && f.device != "" {
		e.Driver = uapi.EnumRdmaDriverId.Short(uint64(f.driver))
	}
	if f.device == "" {
		e.Path = f.word()
	}
	nameHandles(f, c.args, e.Args)
	nameHandles(f, c.results, e.Out)
	e.Created, e.Destroyed = f.refer(c.made), f.refer(c.ended)
	return e
}

// word says what a file is that belongs to no device.
func (f *file) word() string {
	switch f.kind {
	case fileCM:
		return "rdma_cm"
	case fileChannel:
		return "comp_channel"
	case fileAsync:
		return "async"
	case fileDevx:
		return f.name
	}
	return "events"
}

// owner returns the file that a file's objects are in.
func (f *file) owner() *file {
	if f.parent != nil {
		return f.parent
	}
	return f
}

// nameHandles says of handles which object they are, as far as it is known.
func nameHandles(f *file, from []ioctl.NamedValue, to []event.Field) {
	for i := range from {
		nameHandle(f, &from[i].Value, &to[i].Value)
	}
}

func nameHandle(f *file, from *ioctl.Value, to *event.Value) {
	if to.Form == event.Handle && from.Type != nil {
		f := f.owner()
		to.Str = className(f.driver, from.Type.Object)
		if o := f.objects[objectKey{from.Type.Object, from.Num}]; o != nil {
			to.Gen = o.generation
		}
	}
	if len(to.Fields) == len(from.Fields) {
		nameHandles(f, from.Fields, to.Fields)
	}
	if len(to.Elems) == len(from.Elems) {
		for i := range from.Elems {
			nameHandle(f, &from.Elems[i], &to.Elems[i])
		}
	}
}

func (f *file) refer(keys []objectKey) []event.Object {
	var out []event.Object
	for _, k := range keys {
		x := event.Object{Type: className(f.driver, k.class), Handle: k.handle, File: f.id}
		if o := f.objects[k]; o != nil {
			x.Gen, x.Before, x.Num = o.generation, o.before, o.number
		}
		out = append(out, x)
	}
	return out
}

// errnoName returns the name of an error, also of those with which the kernel
// only tells itself to call again after a signal (<linux/errno.h>).
func errnoName(e unix.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	switch e {
	case 512:
		return "ERESTARTSYS"
	case 513:
		return "ERESTARTNOINTR"
	case 514:
		return "ERESTARTNOHAND"
	case 516:
		return "ERESTART_RESTARTBLOCK"
	}
	return fmt.Sprintf("E%d", int(e))
}

// errnoText returns the words for an error as libc has them.
func errnoText(e unix.Errno) string {
	if e >= 512 && e <= 516 {
		return "To be called again after a signal"
	}
	s := e.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// rawAttrs returns the attributes of an ioctl as they are.
func rawAttrs(tid int, v *ioctl.Call) []event.RawAttr {
	var out []event.RawAttr
	left := maxRaw
	for i := range v.Attrs {
		a := &v.Attrs[i]
		r := event.RawAttr{
			ID: a.Raw.AttrId, Len: a.Raw.Len, Flags: a.Raw.Flags,
			Elem: *a.Raw.AttrData.Reserved(), Data: a.Raw.Data,
		}
		if a.Spec != nil {
			r.Name = a.Spec.CName
		}
		if n := int(a.Raw.Len); n > 8 && n <= left {
			b := make([]byte, n)
			if readMemory(tid, a.Raw.Data, b) == nil {
				r.Bytes = b
				left -= n
			}
		}
		out = append(out, r)
	}
	return out
}

// maxRaw bounds what is read for one call's raw attributes.
const maxRaw = 1 << 20
