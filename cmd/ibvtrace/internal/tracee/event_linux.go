//go:build amd64 || arm64

package tracee

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

var eventKinds = [...]event.Kind{
	KindControl: event.Control, KindData: event.Data, KindCM: event.CM, KindEvent: event.Async, KindMap: event.Map,
	KindOpen: event.Open, KindClose: event.Close, kindExit: event.Exit, kindNote: event.Note,
}

// Event returns the event of a call.
func (c *Call) Event() *event.Event {
	e := &event.Event{
		Time: c.start, PID: c.PID, TID: c.TID, Comm: c.comm,
		Kind: eventKinds[c.Kind], Verb: c.Name,
		FD: c.FD, Path: c.Path,
		Args: event.Fields(c.Args), Out: event.Fields(c.Results),
		Returned: c.Returned, Ret: c.Ret, Duration: c.Duration, Timed: c.Timed,
		Why: c.why, Raw: c.Raw,
	}
	if c.Kind == KindControl && c.Verb != nil {
		e.Verb = "ibv_" + c.Name
	}
	if c.Injected {
		e.Why = "injected"
	}
	if c.Problem != nil {
		e.Problem = c.Problem.Error()
	}
	if c.Errno != 0 {
		e.Errno, e.Error = errnoName(c.Errno), errnoText(c.Errno)
	}
	if v := c.Verb; v != nil {
		e.Object, e.Method, e.Driver = v.ObjectName(), v.MethodName(), v.Driver()
	}
	f := c.File
	if f == nil {
		return e
	}
	e.Device, e.File = f.Device, f.ID
	if e.Driver == "" && f.Device != "" {
		e.Driver = uapi.EnumRdmaDriverId.Short(uint64(f.Driver))
	}
	if f.Device == "" {
		e.Path = f.word()
	}
	nameHandles(f, c.Args, e.Args)
	nameHandles(f, c.Results, e.Out)
	e.Created, e.Destroyed = f.refer(c.Made), f.refer(c.Ended)
	return e
}

// word describes a file without a device.
func (f *File) word() string {
	switch f.Kind {
	case FileCM:
		return "rdma_cm"
	case FileChannel:
		return "comp_channel"
	case FileAsync:
		return "async"
	case FileDevx:
		return f.Name
	}
	return "events"
}

// owner returns the file that owns the objects a file refers to.
func (f *File) owner() *File {
	if f.Parent != nil {
		return f.Parent
	}
	return f
}

// nameHandles sets the object type and the generation of handles, if they are known.
func nameHandles(f *File, from []ioctl.NamedValue, to []event.Field) {
	for i := range from {
		nameHandle(f, &from[i].Value, &to[i].Value)
	}
}

func nameHandle(f *File, from *ioctl.Value, to *event.Value) {
	if to.Form == event.Handle && from.Type != nil {
		f := f.owner()
		to.Str = ClassName(f.Driver, from.Type.Object)
		if o := f.Objects[ObjectKey{from.Type.Object, from.Num}]; o != nil {
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

func (f *File) refer(keys []ObjectKey) []event.Object {
	var out []event.Object
	for _, k := range keys {
		x := event.Object{Type: ClassName(f.Driver, k.Class), Handle: k.Handle, File: f.ID}
		if o := f.Objects[k]; o != nil {
			x.Gen, x.Before, x.Num = o.generation, o.before, o.Number
		}
		out = append(out, x)
	}
	return out
}

// errnoName returns the name of an error, including those with which the kernel restarts
// system calls after a signal (<linux/errno.h>).
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

// errnoText returns libc's words for an error.
func errnoText(e unix.Errno) string {
	if e >= 512 && e <= 516 {
		return "To be restarted after a signal"
	}
	s := e.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}
