//go:build amd64 || arm64

package calls

import (
	"encoding/binary"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// EnterIoctl decodes the verbs ioctl.
func (t *Decoder) EnterIoctl(th *tracee.Thread, fd int, addr uint64) *tracee.Call {
	c := t.NewCall(th, tracee.KindControl, "rdma_verbs_ioctl")
	t.onFile(th, c, fd)
	if c.File != nil && c.File == th.Deciding {
		th.Deciding = nil
	}
	c.Verb, c.Problem = ioctl.Decode(addr, t.Memory(th))
	t.readVerb(c)
	if t.raw && c.Verb != nil {
		c.Raw = rawAttrs(t.Memory(th), c.Verb)
	}
	c.Finish = t.finishVerb
	return c
}

// onFile sets the file of a call.
func (t *Decoder) onFile(th *tracee.Thread, c *tracee.Call, fd int) {
	c.FD = fd
	if c.File = t.File(th, fd); c.File == nil {
		c.Path = ptrace.FDPath(th.TID, fd)
	}
}

func (t *Decoder) readVerb(c *tracee.Call) {
	if c.Verb == nil {
		return
	}
	c.Name = c.Verb.Verb()
	if c.Problem = c.Verb.Err; c.Problem == nil {
		c.Args = c.Verb.Args()
	}
}

// finishVerb decodes the results of a verb that has returned.
func (t *Decoder) finishVerb(th *tracee.Thread, c *tracee.Call) {
	if c.Verb == nil {
		return
	}
	if c.Errno != 0 {
		return
	}
	c.Verb.DecodeResults(t.Memory(th))
	c.Results = c.Verb.Results()
	if c.File == nil {
		return
	}
	if !c.Verb.Written() {
		c.File.Driver = uapi.RdmaDriverId(c.Verb.Header.DriverId)
	}
	t.track(c)
	t.newDescriptors(th, c)
	if th.Replayed != nil {
		return // the rest applies to a stopped thread only
	}
	t.stops.Watch(th, c.FD, c.File)
	t.verbs.Succeeded(th, c)
}

// maxFDs bounds the descriptors that are known of a program that doesn't stop. It is what the
// kernel allows by default.
const maxFDs = 1 << 20

// newDescriptors adds the event files that a verb has opened.
func (t *Decoder) newDescriptors(th *tracee.Thread, c *tracee.Call) {
	for _, r := range c.Results {
		if r.Value.Kind() != uapi.TypeFD || r.Value.Err != nil {
			continue
		}
		fd := int(int32(r.Value.Num))
		kind, name := tracee.FileAsync, ""
		switch {
		case strings.Contains(c.Name, "comp_channel"):
			kind = tracee.FileChannel
		case strings.Contains(c.Name, "devx") || strings.Contains(c.Verb.ObjectName(), "DEVX"):
			kind, name = tracee.FileDevx, strings.ToLower(c.Verb.ObjectName())
		}
		made := tracee.File{Kind: kind, Name: name, Device: c.File.Device, Driver: c.File.Driver, Parent: c.File}
		switch {
		case th.Replayed == nil:
			if tracee.Identify(th.TID, fd).Kind != tracee.FileOther {
				t.stops.Watch(th, fd, t.NewFile(th.Proc, fd, made))
			}
		case fd >= 0 && fd < maxFDs: // by now it may be another file
			t.NewFile(th.Proc, fd, made)
		}
	}
}

// EnterWrite decodes a command by write(2): for the connection manager, or a verb in the form
// that preceded the ioctl.
func (t *Decoder) EnterWrite(th *tracee.Thread, fd int, addr, n uint64) *tracee.Call {
	f := t.File(th, fd)
	if f == nil {
		return nil
	}
	switch f.Kind {
	case tracee.FileCM:
		return t.enterCM(th, fd, f, addr, n)
	case tracee.FileUverbs:
	default:
		return nil
	}
	if f.Driver == uapi.RDMA_DRIVER_RXE {
		var command [4]byte
		if ptrace.ReadMemory(th.TID, addr, command[:]) == nil && binary.NativeEndian.Uint32(command[:]) == uapi.IB_USER_VERBS_CMD_POST_SEND {
			return nil // the doorbell, which is no control verb
		}
	}
	c := t.NewCall(th, tracee.KindControl, "write")
	c.FD, c.File = fd, f
	c.Verb, c.Problem = ioctl.DecodeWrite(addr, n, f.Driver, t.Memory(th))
	t.readVerb(c)
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		f.Legacy = true
		if th.Deciding == f {
			th.Deciding = nil
		}
		t.finishVerb(th, c)
		t.stops.Watch(th, fd, f)
	}
	return c
}
