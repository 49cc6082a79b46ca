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

// Note says something about a process.
func (t *Set) Note(p *Process, why string) { t.NoteFile(p, -1, nil, nil, why) }

// NoteFile says something about one of its files, and which objects that has.
func (t *Set) NoteFile(p *Process, fd int, f *File, made []ObjectKey, why string) {
	t.Emit(&Call{
		Kind: kindNote, start: time.Now(), PID: p.PID, TID: p.PID, comm: ptrace.ThreadName(p.PID),
		FD: fd, File: f, Made: made, why: why,
	})
}

// NoteRights says of a process that began a program if this lacks the rights that its
// file gives: the kernel gives none to a process that one without rights traces.
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
		t.Note(p, fmt.Sprintf("runs without the rights of user %d that its file gives: who traces it lacks them", file.Uid))
	case file.Mode&inGroup == inGroup && gid != file.Gid:
		t.Note(p, fmt.Sprintf("runs without the rights of group %d that its file gives: who traces it lacks them", file.Gid))
	}
}

// NoteExit says how a process ended that had to do with RDMA.
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

// NoteVain says how often a process polled an empty CQ, if it did.
func (t *Set) NoteVain(p *Process, n uint64) {
	if n > 0 {
		t.Note(p, "polled an empty CQ "+Plural(n, "time"))
	}
}

// Plural returns a number with a word, which has an s unless the number is 1.
func Plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
