//go:build amd64 || arm64

package trace

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
)

// A dataState is what has become of the verbs of a process that post and poll.
type dataState uint8

const (
	dataUnknown dataState = iota
	dataTraced            // by probes, or the program tells
	dataRefused           // it said why
)

// tracesData reports whether the data verbs of a process are traced.
func (t *tracer) tracesData(p *tracee.Process) bool {
	if t.opt.Data && t.data[p] == dataUnknown {
		t.data[p] = dataTraced
		t.checkData(p)
	}
	return t.data[p] == dataTraced
}

// checkData ends the tracing of data verbs if the process's own filters do not allow
// what a probe calls, and what a program tells by.
func (t *tracer) checkData(p *tracee.Process) {
	if t.data[p] == dataTraced && !p.Allows(unix.SYS_GETPID, 0, 0, 0, 0, 0, tracing.Magic<<32) {
		t.endData(p)
		t.refuseData(p, ptrace.ErrFiltered)
	}
}

// refuseData says why the data verbs of a process are not traced.
func (t *tracer) refuseData(p *tracee.Process, why error) {
	t.data[p] = dataRefused
	t.Note(p, "posting and polling are not traced: "+why.Error())
}

// dataOf reports whether the thread's process is one whose data verbs the probes are to
// trace, and what the thread's registers hold. A program that can tell is asked to.
func (t *tracer) dataOf(th *tracee.Thread) (regs ptrace.Registers, probed bool) {
	if !t.tracesData(th.Proc) {
		return regs, false
	}
	regs, err := ptrace.GetRegisters(th.TID)
	if err != nil || !regs.Native() {
		return regs, false
	}
	return regs, !t.goPrograms.Ask(th.Proc)
}

// attachData has the tables of a process that runs lead to probes. All its threads are
// stopped, th is one of them.
func (t *tracer) attachData(th *tracee.Thread) {
	if _, probed := t.dataOf(th); probed {
		if err := t.probes.Attach(th); err != nil && err != ptrace.ErrDied {
			t.refuseData(th.Proc, err)
		}
	}
}

// endData stops tracing a process's data verbs.
func (t *tracer) endData(p *tracee.Process) {
	t.goPrograms.End(p)
	t.probes.End(p)
}

// noteEmpty says how often a process polled in vain that nothing has said yet.
func (t *tracer) noteEmpty(p *tracee.Process) {
	t.goPrograms.NoteEmpty(p)
	t.probes.NoteEmpty(p)
}

// trap handles what a probe or a program tells.
func (t *tracer) trap(th *tracee.Thread, info *ptrace.SyscallInfo) {
	if told, ok := tracing.CallOf(info.Args); ok {
		t.goPrograms.Trap(th, told)
		return
	}
	t.probes.Trap(th, info)
}

// What the calls say:

// Succeeded has the tables of pointers that there are by then lead to probes.
func (t *tracer) Succeeded(th *tracee.Thread, c *tracee.Call) {
	if c.File == nil || c.File.Kind != tracee.FileUverbs {
		return
	}
	if regs, probed := t.dataOf(th); probed {
		if err := t.probes.AfterVerb(th, c, &regs); err != nil && err != ptrace.ErrDied {
			t.refuseData(th.Proc, err)
		}
	}
}

// Returned has the verbs recorded that come later.
func (t *tracer) Returned(th *tracee.Thread, c *tracee.Call) {
	if t.command == 0 || t.opt.Stop || t.opt.Data || t.opt.Raw {
		return
	}
	if t.recordings.Record(th, c) {
		t.poll()
	}
}

// Destroyed has the probes forget an object.
func (t *tracer) Destroyed(pid int, user uint64) {
	if p := t.Processes[pid]; p != nil {
		t.probes.Forget(p, user)
	}
}

// Attached traces the data verbs of a process that was attached to.
func (t *tracer) Attached(p *tracee.Process, at *tracee.Thread) {
	t.stops.ReadOwn(p)
	if at != nil {
		t.attachData(at)
	}
}

// What the stops say and ask:

// Limiting ends what is recorded: the process is about to have a filter of its own.
func (t *tracer) Limiting(p *tracee.Process) { t.recordings.End(p) }

// Limited ends what the process may no longer call.
func (t *tracer) Limited(p *tracee.Process) { t.checkData(p) }

// Inserts reports whether something was put into a process.
func (t *tracer) Inserts(p *tracee.Process) bool { return t.recordings.Has(p) || t.probes.Has(p) }

// InInsert reports whether a stopped thread is in that.
func (t *tracer) InInsert(th *tracee.Thread) bool {
	return t.probes.InProbe(th) || t.recordings.InRecorder(th)
}
