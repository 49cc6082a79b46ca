//go:build amd64 || arm64

package recording

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// Replay handles what has been recorded.
func (t *Recordings) Replay() {
	for _, r := range t.all {
		r.memory.Take(func(x *recorder.Record) { t.replayOne(r, x) })
	}
}

func (t *Recordings) replayOne(r *recording, x *recorder.Record) {
	th := t.Threads[x.Thread]
	if th == nil || t.of[th.Proc] != r && t.Has(th.Proc) {
		// No thread of the program, whatever it says. One of a child whose parent was
		// not found has none.
		return
	}
	defer func(now time.Time) { t.Now, th.Replayed = now, nil }(t.Now)
	t.Now, th.Replayed = x.Start, x.Before
	fd := int(int32(x.Args[0]))
	var c *tracee.Call
	if x.Ioctl {
		c = t.calls.EnterIoctl(th, fd, x.Args[2])
	} else if c = t.calls.EnterMmap(th, x.Args); c == nil {
		return
	}
	if x.Returned {
		c.Resumed = x.Start
		t.Now, th.Replayed = x.End, x.After
		t.Complete(th, c, x.Result)
	} else {
		t.Emit(c)
	}
	c.Said = c.Event() // before the next ends what it names
}

// replayUnfinished handles the calls of threads that are gone.
func (t *Recordings) replayUnfinished(r *recording, gone func(tid int) bool) {
	r.memory.Unfinished(gone, func(x *recorder.Record) { t.replayOne(r, x) })
}

// ThreadGone handles the call that a thread that is gone was in.
func (t *Recordings) ThreadGone(th *tracee.Thread) {
	if r := t.of[th.Proc]; r != nil {
		t.replayUnfinished(r, func(tid int) bool { return tid == th.TID })
	}
}

// Leave ends what a process has of its recording: its memory is gone.
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
	r.memory.Reset() // a parent after vfork may still have it
	r.memory.Close()
}

// Gone forgets a process.
func (t *Recordings) Gone(p *tracee.Process) {
	t.Leave(p)
	delete(t.tries, p)
}

// End has the process's calls stop again.
func (t *Recordings) End(p *tracee.Process) {
	r := t.of[p]
	if r == nil || r.ended {
		return
	}
	r.ended = true
	r.memory.Reset()
}
