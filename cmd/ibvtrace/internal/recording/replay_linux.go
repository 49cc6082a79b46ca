//go:build amd64 || arm64

package recording

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// Replay handles all finished records.
func (t *Recordings) Replay() {
	for _, r := range t.all {
		r.memory.Take(func(x *recorder.Record) { t.replayOne(r, x) })
	}
}

func (t *Recordings) replayOne(r *recording, x *recorder.Record) {
	th := t.Threads[x.Thread]
	if th == nil || t.of[th.Proc] != r && t.Has(th.Proc) {
		// Not a thread of the program, although the record says so. A child whose
		// parent is not known has no recording, and its records are handled.
		return
	}
	if t.Broken() {
		return
	}
	defer func(now time.Time) { t.Now, th.Replayed = now, nil }(t.Now)
	t.Now, th.Replayed = x.Start, x.Before
	var c *tracee.Call
	nr := uint64(unix.SYS_MMAP)
	if x.Ioctl {
		nr = unix.SYS_IOCTL
	}
	err := t.Guard(func() {
		if x.Ioctl {
			c = t.calls.EnterIoctl(th, int(int32(x.Args[0])), x.Args[2])
		} else {
			c = t.calls.EnterMmap(th, x.Args)
		}
	})
	if err != nil {
		c = t.Undecoded(th, nr, x.Args, err)
	}
	if c == nil {
		return
	}
	if x.Returned {
		c.Resumed = x.Start
		t.Now, th.Replayed = x.End, x.After
		t.Complete(th, c, x.Result)
	} else {
		t.Emit(c)
	}
	t.Guard(func() { c.Said = c.Event() }) // now, since later calls may destroy the objects that it names
}

// replayUnfinished handles unfinished records of threads that have ended.
func (t *Recordings) replayUnfinished(r *recording, gone func(tid int) bool) {
	r.memory.Unfinished(gone, func(x *recorder.Record) { t.replayOne(r, x) })
}

// ThreadGone handles the unfinished record of a thread that has ended.
func (t *Recordings) ThreadGone(th *tracee.Thread) {
	if r := t.of[th.Proc]; r != nil {
		t.replayUnfinished(r, func(tid int) bool { return tid == th.TID })
	}
}

// Leave takes the recording from a process whose memory is gone, after an exec or its end.
func (t *Recordings) Leave(p *tracee.Process) {
	r := t.of[p]
	if r == nil {
		return
	}
	t.replayUnfinished(r, func(tid int) bool { th := t.Threads[tid]; return th == nil || th.Proc == p })
	delete(t.of, p)
	delete(t.tries, p)
	p.Left = nil
	if r.users--; r.users > 0 {
		return
	}
	t.all = slices.DeleteFunc(t.all, func(other *recording) bool { return other == r })
	r.memory.Reset() // a parent after vfork may still use it
	r.memory.Close()
}

// Gone forgets a process.
func (t *Recordings) Gone(p *tracee.Process) {
	t.Leave(p)
	delete(t.tries, p)
}

// End ends recording. The verbs of all processes of the recording stop again.
func (t *Recordings) End(p *tracee.Process) {
	r := t.of[p]
	if r == nil || r.ended {
		return
	}
	r.ended = true
	r.memory.Reset()
}
