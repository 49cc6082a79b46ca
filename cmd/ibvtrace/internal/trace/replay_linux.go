//go:build amd64 || arm64

package trace

import (
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
)

// What programs have recorded is handled by what handles their stops, which sees their
// memory as it was then. It is looked for before each stop and each end of a thread, so
// that what happened before is handled before, and every now and then.

// replay handles what has been recorded.
func (t *tracer) replay() {
	for _, r := range t.recordings {
		r.memory.Take(func(x *recorder.Record) { t.replayOne(r, x) })
	}
}

func (t *tracer) replayOne(r *recording, x *recorder.Record) {
	th := t.threads[x.Thread]
	if th == nil || th.proc.recording != r && th.proc.recording != nil {
		// No thread of the program, whatever it says. One of a child whose parent was
		// not found has none.
		return
	}
	defer func(now time.Time) { t.now, th.replayed = now, nil }(t.now)
	t.now, th.replayed = x.Start, x.Before
	fd := int(int32(x.Args[0]))
	var c *call
	if x.Ioctl {
		c = t.enterIoctl(th, fd, x.Args[2])
	} else if c = t.enterMmap(th, x.Args); c == nil {
		return
	}
	if x.Returned {
		c.resumed = x.Start
		t.now, th.replayed = x.End, x.After
		t.complete(th, c, x.Result)
	} else {
		t.emit(c)
	}
	c.said = c.event() // before the next ends what it names
}

// replayUnfinished handles the calls of threads that are gone.
func (t *tracer) replayUnfinished(r *recording, gone func(tid int) bool) {
	r.memory.Unfinished(gone, func(x *recorder.Record) { t.replayOne(r, x) })
}

// leaveRecording ends what a process has of it: its memory is gone.
func (t *tracer) leaveRecording(p *process) {
	r := p.recording
	if r == nil {
		return
	}
	t.replayUnfinished(r, func(tid int) bool { th := t.threads[tid]; return th == nil || th.proc == p })
	p.recording, p.recordTries = nil, 0
	if r.users--; r.users > 0 {
		return
	}
	for i := range t.recordings {
		if t.recordings[i] == r {
			t.recordings = append(t.recordings[:i], t.recordings[i+1:]...)
			break
		}
	}
	r.memory.Reset() // a parent after vfork may still have it
	r.memory.Close()
}

// endRecording has the process's calls stop again.
func (p *process) endRecording() {
	r := p.recording
	if r == nil || r.ended {
		return
	}
	r.ended = true
	r.memory.Reset()
}

// The times between looks at what was recorded: the first while there is something, up
// to the last while there is nothing.
const (
	pollFirst = 10 * time.Millisecond
	pollLast  = 160 * time.Millisecond
)

// poll handles what programs record that do not stop.
func (t *tracer) poll() {
	for wait := pollFirst; ; wait = min(2*wait, pollLast) {
		time.Sleep(wait)
		t.mu.Lock()
		if t.over {
			t.mu.Unlock()
			return
		}
		t.replay()
		if len(t.done) > 0 {
			wait = pollFirst / 2
			t.show()
		}
		t.mu.Unlock()
	}
}
