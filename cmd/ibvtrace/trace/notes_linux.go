//go:build amd64 || arm64

package trace

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
)

// note says something about a process.
func (t *tracer) note(p *process, why string) { t.noteFile(p, -1, nil, nil, why) }

// noteFile says something about one of its files, and which objects that has.
func (t *tracer) noteFile(p *process, fd int, f *file, made []objectKey, why string) {
	t.emit(&call{
		kind: kindNote, start: time.Now(), pid: p.pid, tid: p.pid, comm: threadName(p.pid),
		fd: fd, file: f, made: made, why: why,
	})
}

// noteExit says how a process ended that had to do with RDMA.
func (t *tracer) noteExit(p *process, ws unix.WaitStatus) {
	if !p.rdma {
		return
	}
	c := &call{kind: kindExit, name: "exited", start: time.Now(), pid: p.pid, tid: p.pid, comm: p.comm, fd: -1, returned: true}
	switch {
	case ws.Exited():
		c.ret = int64(ws.ExitStatus())
		c.args = []ioctl.NamedValue{number("status", uint64(ws.ExitStatus()))}
	case ws.Signaled():
		c.name = "killed"
		c.args = []ioctl.NamedValue{text("signal", unix.SignalName(ws.Signal()))}
	}
	t.emit(c)
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
