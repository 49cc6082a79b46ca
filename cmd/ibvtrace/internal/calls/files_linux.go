//go:build amd64 || arm64

package calls

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
)

// maxPath is the kernel's PATH_MAX.
const maxPath = 4096

// EnterOpen handles an open, which may be of a device.
func (t *Decoder) EnterOpen(th *tracee.Thread, path, flags uint64) *tracee.Call {
	if flags&unix.O_ACCMODE != unix.O_RDWR {
		return nil
	}
	c := t.NewCall(th, tracee.KindOpen, "open")
	c.Silent = true // unless it turns out to be an RDMA file
	name, _ := ptrace.ReadString(th.TID, path, maxPath)
	c.Args = []ioctl.NamedValue{tracee.Text("path", name)}
	if strings.HasSuffix(name, "/comm") {
		th.Proc.Renames = true
	}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno != 0 {
			c.Silent = !isDevicePath(name)
			c.FD, c.Path = -1, name
			return
		}
		c.FD = int(c.Ret)
		f := tracee.Identify(th.TID, c.FD)
		if f.Kind == tracee.FileOther {
			th.Proc.SetFD(c.FD, nil)
			return
		}
		c.Silent = false
		c.File = t.NewFile(th.Proc, c.FD, f)
		c.Results = []ioctl.NamedValue{tracee.Descriptor("fd", c.FD)}
		t.stops.Opened(th, c.FD, c.File)
	}
	return c
}

// isDevicePath reports whether a path that could not be opened is that of an RDMA file.
func isDevicePath(path string) bool {
	base := filepath.Base(path)
	return base == "rdma_cm" || strings.HasPrefix(base, "uverbs")
}

// EnterClose handles a close, which may be of an RDMA file.
func (t *Decoder) EnterClose(th *tracee.Thread, fd int) *tracee.Call {
	f := t.File(th, fd)
	if f == nil {
		return nil
	}
	c := t.NewCall(th, tracee.KindClose, "close")
	c.FD, c.File = fd, f
	c.Args = []ioctl.NamedValue{tracee.Descriptor("fd", fd)}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno != unix.EBADF { // other errors close the descriptor too
			th.Proc.SetFD(fd, nil)
		}
	}
	return c
}

// EnterCloseRange handles a close of all descriptors from first to last.
func (t *Decoder) EnterCloseRange(th *tracee.Thread, first, last, flags uint64) *tracee.Call {
	const closeRangeCloexec = 1 << 2 // sets FD_CLOEXEC, and closes nothing
	if flags&closeRangeCloexec != 0 {
		return nil
	}
	in := func(fd int) bool { return uint64(fd) >= first&0xffffffff && uint64(fd) <= last&0xffffffff }
	any := false
	for fd := range th.Proc.FDs {
		any = any || in(fd)
	}
	if !any {
		return nil
	}
	c := t.NewCall(th, tracee.KindClose, "close_range")
	c.Args = []ioctl.NamedValue{tracee.Number("first", first&0xffffffff), tracee.Number("last", last&0xffffffff)}
	c.FD = -1
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		for fd := range th.Proc.FDs {
			if c.Errno == 0 && in(fd) {
				th.Proc.SetFD(fd, nil)
			}
		}
	}
	return c
}

// EnterDup handles a call that duplicates fd to another descriptor, to, which is -1 for any
// free one.
func (t *Decoder) EnterDup(th *tracee.Thread, fd, to int) *tracee.Call {
	f, old := t.File(th, fd), th.Proc.FDs[to]
	if f == nil && old == nil {
		return nil
	}
	c := t.NewCall(th, tracee.KindOpen, "dup")
	c.Args = []ioctl.NamedValue{tracee.Descriptor("fd", fd)}
	c.FD, c.File = fd, f
	if f == nil {
		c.Kind, c.Name = tracee.KindClose, "close"
		c.FD, c.File = to, old
		c.Args = []ioctl.NamedValue{tracee.Descriptor("fd", to)}
	}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno != 0 || fd == to {
			return
		}
		th.Proc.SetFD(int(c.Ret), f)
		if f != nil {
			c.Results = []ioctl.NamedValue{tracee.Descriptor("fd", int(c.Ret))}
			t.stops.Watch(th, int(c.Ret), f)
		}
	}
	return c
}
