//go:build amd64 || arm64

package trace

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
)

// longestPath is the kernel's PATH_MAX.
const longestPath = 4096

// enterOpen looks at an open that may be one of a device.
func (t *tracer) enterOpen(th *thread, path, flags uint64) *call {
	if flags&unix.O_ACCMODE != unix.O_RDWR {
		return nil
	}
	c := t.newCall(th, kindOpen, "open")
	c.silent = true // until it is known to be about RDMA
	name, _ := readString(th.tid, path, longestPath)
	c.args = []ioctl.NamedValue{text("path", name)}
	if strings.HasSuffix(name, "/comm") {
		th.proc.renames = true
	}
	c.finish = func(t *tracer, th *thread, c *call) {
		if c.errno != 0 {
			c.silent = !isDevicePath(name)
			c.fd, c.path = -1, name
			return
		}
		c.fd = int(c.ret)
		f := identify(th.tid, c.fd)
		if f.kind == fileOther {
			th.proc.setFD(c.fd, nil)
			return
		}
		c.silent = false
		c.file = t.newFile(th.proc, c.fd, f)
		c.results = []ioctl.NamedValue{descriptor("fd", c.fd)}
		t.watch(th, c.fd, c.file)
		if c.file.watches()&watchWrite == 0 {
			th.deciding, th.calls = c.file, 0
		}
	}
	return c
}

// isDevicePath tells whether a path that was not opened would have been RDMA's.
func isDevicePath(path string) bool {
	base := filepath.Base(path)
	return base == "rdma_cm" || strings.HasPrefix(base, "uverbs")
}

func (t *tracer) enterClose(th *thread, fd int) *call {
	f := th.proc.fds[fd]
	if f == nil {
		return nil
	}
	c := t.newCall(th, kindClose, "close")
	c.fd, c.file = fd, f
	c.args = []ioctl.NamedValue{descriptor("fd", fd)}
	c.finish = func(_ *tracer, th *thread, c *call) {
		if c.errno != unix.EBADF { // whatever it says else, it is closed
			th.proc.setFD(fd, nil)
		}
	}
	return c
}

func (t *tracer) enterCloseRange(th *thread, first, last, flags uint64) *call {
	const closeRangeCloexec = 1 << 2 // only marks
	if flags&closeRangeCloexec != 0 {
		return nil
	}
	in := func(fd int) bool { return uint64(fd) >= first&0xffffffff && uint64(fd) <= last&0xffffffff }
	any := false
	for fd := range th.proc.fds {
		any = any || in(fd)
	}
	if !any {
		return nil
	}
	c := t.newCall(th, kindClose, "close_range")
	c.args = []ioctl.NamedValue{number("first", first&0xffffffff), number("last", last&0xffffffff)}
	c.fd = -1
	c.finish = func(_ *tracer, th *thread, c *call) {
		for fd := range th.proc.fds {
			if c.errno == 0 && in(fd) {
				th.proc.setFD(fd, nil)
			}
		}
	}
	return c
}

// enterDup looks at a call that makes another descriptor of fd: to, or -1 for any
// that is free.
func (t *tracer) enterDup(th *thread, fd, to int) *call {
	f, old := th.proc.fds[fd], th.proc.fds[to]
	if f == nil && old == nil {
		return nil
	}
	c := t.newCall(th, kindOpen, "dup")
	c.args = []ioctl.NamedValue{descriptor("fd", fd)}
	c.fd, c.file = fd, f
	if f == nil {
		c.kind, c.name = kindClose, "close"
		c.fd, c.file = to, old
		c.args = []ioctl.NamedValue{descriptor("fd", to)}
	}
	c.finish = func(t *tracer, th *thread, c *call) {
		if c.errno != 0 || fd == to {
			return
		}
		th.proc.setFD(int(c.ret), f)
		if f != nil {
			c.results = []ioctl.NamedValue{descriptor("fd", int(c.ret))}
			t.watch(th, int(c.ret), f)
		}
	}
	return c
}
