//go:build amd64 || arm64

package trace

import (
	"fmt"
	"os"
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

// noteRights says of a process that began a program if this lacks the rights that its
// file gives: the kernel gives none to a process that one without rights traces.
func (t *tracer) noteRights(p *process) {
	exe := fmt.Sprintf("/proc/%d/exe", p.pid)
	var file unix.Stat_t
	if unix.Stat(exe, &file) != nil || file.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return
	}
	const inGroup = unix.S_ISGID | unix.S_IXGRP
	switch uid, gid := effectiveIDs(string(status)); {
	case file.Mode&unix.S_ISUID != 0 && uid != file.Uid:
		t.note(p, fmt.Sprintf("runs without the rights of user %d that its file gives: who traces it lacks them", file.Uid))
	case file.Mode&inGroup == inGroup && gid != file.Gid:
		t.note(p, fmt.Sprintf("runs without the rights of group %d that its file gives: who traces it lacks them", file.Gid))
	}
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
