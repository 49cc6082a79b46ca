//go:build amd64 || arm64

package tracee

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/ioctl"
)

// Note emits a note about a process.
func (t *Set) Note(p *Process, why string) { t.NoteFile(p, -1, nil, nil, why) }

// NoteFile emits a note about a file of a process, with the file's objects.
func (t *Set) NoteFile(p *Process, fd int, f *File, made []ObjectKey, why string) {
	p.rdma = p.rdma || f != nil
	t.Emit(&Call{
		Kind: kindNote, start: time.Now(), PID: p.PID, TID: p.PID, comm: ptrace.ThreadName(p.PID),
		FD: fd, File: f, Made: made, why: why,
	})
}

// NoteRights emits a note if a process has executed a set-user-ID or set-group-ID file without
// gaining the rights: the kernel grants none to a process whose tracer lacks them.
func (t *Set) NoteRights(p *Process) {
	exe := fmt.Sprintf("/proc/%d/exe", p.PID)
	var file unix.Stat_t
	if unix.Stat(exe, &file) != nil || file.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return
	}
	const inGroup = unix.S_ISGID | unix.S_IXGRP
	switch uid, gid := ptrace.EffectiveIDs(string(status)); {
	case file.Mode&unix.S_ISUID != 0 && uid != file.Uid:
		t.Note(p, fmt.Sprintf("runs without the privileges of user %d, which its set-user-ID file grants: the tracer lacks them", file.Uid))
	case file.Mode&inGroup == inGroup && gid != file.Gid:
		t.Note(p, fmt.Sprintf("runs without the privileges of group %d, which its set-group-ID file grants: the tracer lacks them", file.Gid))
	}
}

// NoteExit emits how a process ended, if anything was shown of it.
func (t *Set) NoteExit(p *Process, ws unix.WaitStatus) {
	if !p.rdma {
		return
	}
	c := &Call{Kind: kindExit, Name: "exited", start: time.Now(), PID: p.PID, TID: p.PID, comm: p.comm, FD: -1, Returned: true}
	switch {
	case ws.Exited():
		c.Ret = int64(ws.ExitStatus())
		c.Args = []ioctl.NamedValue{Number("status", uint64(ws.ExitStatus()))}
	case ws.Signaled():
		c.Name = "killed"
		c.Args = []ioctl.NamedValue{Text("signal", unix.SignalName(ws.Signal()))}
	}
	t.Emit(c)
}

// NoteEmptyPolls emits a note if n, the number of polls that found nothing, is not 0.
func (t *Set) NoteEmptyPolls(p *Process, n uint64) {
	if n > 0 {
		t.Note(p, "polled an empty CQ "+Plural(n, "time"))
	}
}

// Plural returns a number and a noun, with an s unless the number is 1.
func Plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
