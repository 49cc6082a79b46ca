//go:build amd64 || arm64

package trace

import (
	"encoding/binary"
	"strings"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// enterIoctl reads a verb that comes by the verbs' ioctl.
func (t *tracer) enterIoctl(th *thread, fd int, addr uint64) *call {
	c := t.newCall(th, kindControl, "rdma_verbs_ioctl")
	t.onFile(th, c, fd)
	if c.file != nil && c.file == th.deciding {
		th.deciding = nil
	}
	c.verb, c.problem = ioctl.Decode(addr, t.memory(th))
	t.readVerb(c)
	if t.opt.Raw && c.verb != nil {
		c.raw = rawAttrs(th.tid, c.verb)
	}
	c.finish = (*tracer).finishVerb
	return c
}

// onFile says which file a call is for.
func (t *tracer) onFile(th *thread, c *call, fd int) {
	c.fd = fd
	if c.file = t.file(th, fd); c.file == nil {
		c.path = fdPath(th.tid, fd)
	}
}

func (t *tracer) readVerb(c *call) {
	if c.verb == nil {
		return
	}
	c.name = c.verb.Verb()
	if c.problem = c.verb.Err; c.problem == nil {
		c.args = c.verb.Args()
	}
}

// finishVerb reads what a verb gave, once it has returned.
func (t *tracer) finishVerb(th *thread, c *call) {
	if c.verb == nil {
		return
	}
	if !c.verb.Written() && th.replayed == nil {
		defer t.record(th, c)
	}
	if c.errno != 0 {
		return
	}
	c.verb.DecodeResults(t.memory(th))
	c.results = c.verb.Results()
	if c.file == nil {
		return
	}
	if !c.verb.Written() {
		c.file.driver = uapi.RdmaDriverId(c.verb.Header.DriverId)
	}
	t.track(c)
	if th.replayed != nil {
		return // what follows is for the thread as it stands
	}
	t.newDescriptors(th, c)
	t.watch(th, c.fd, c.file)
	t.afterVerb(th, c)
}

// newDescriptors makes known the event files that a verb opened.
func (t *tracer) newDescriptors(th *thread, c *call) {
	for _, r := range c.results {
		if r.Value.Kind() != uapi.TypeFD || r.Value.Err != nil {
			continue
		}
		fd := int(int32(r.Value.Num))
		kind, name := fileAsync, ""
		switch {
		case strings.Contains(c.name, "comp_channel"):
			kind = fileChannel
		case strings.Contains(c.name, "devx") || strings.Contains(c.verb.ObjectName(), "DEVX"):
			kind, name = fileDevx, strings.ToLower(c.verb.ObjectName())
		}
		if identify(th.tid, fd).kind == fileOther {
			continue // not that either
		}
		f := t.newFile(th.proc, fd, file{kind: kind, name: name, device: c.file.device, driver: c.file.driver, parent: c.file})
		t.watch(th, fd, f)
	}
}

// enterWrite reads a command that comes by write(2): to the connection manager, or
// a verb in the form that came before the ioctl.
func (t *tracer) enterWrite(th *thread, fd int, addr, n uint64) *call {
	f := th.proc.fds[fd]
	if f == nil {
		return nil
	}
	switch f.kind {
	case fileCM:
		return t.enterCM(th, fd, f, addr, n)
	case fileUverbs:
	default:
		return nil
	}
	if f.driver == uapi.RDMA_DRIVER_RXE {
		var command [4]byte
		if readMemory(th.tid, addr, command[:]) == nil && binary.NativeEndian.Uint32(command[:]) == uapi.IB_USER_VERBS_CMD_POST_SEND {
			return nil // the doorbell, which is not control
		}
	}
	c := t.newCall(th, kindControl, "write")
	c.fd, c.file = fd, f
	c.verb, c.problem = ioctl.DecodeWrite(addr, n, f.driver, t.memory(th))
	t.readVerb(c)
	c.finish = func(t *tracer, th *thread, c *call) {
		f.legacy = true
		if th.deciding == f {
			th.deciding = nil
		}
		t.finishVerb(th, c)
		t.watch(th, fd, f)
	}
	return c
}
