//go:build amd64 || arm64

package tracer

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
)

// A dataState says whether the data verbs of a process are traced.
type dataState uint8

const (
	dataUnknown dataState = iota
	dataTraced            // by probes, or reported by the program
	dataRefused           // a note has said why
)

// tracesData reports whether the data verbs of a process are traced.
func (t *tracer) tracesData(p *tracee.Process) bool {
	if t.opt.Data && t.data[p] == dataUnknown {
		t.data[p] = dataTraced
		t.checkData(p)
	}
	return t.data[p] == dataTraced
}

// checkData ends the tracing of data verbs if the process's own filters do not allow the
// getpid with which probes and Go programs report them.
func (t *tracer) checkData(p *tracee.Process) {
	if t.data[p] == dataTraced && !p.Allows(unix.SYS_GETPID, 0, 0, 0, 0, 0, tracing.Magic<<32) {
		t.endData(p)
		t.refuseData(p, ptrace.ErrFiltered)
	}
}

// refuseData emits a note that says why the data verbs of a process are not traced.
func (t *tracer) refuseData(p *tracee.Process, why error) {
	t.data[p] = dataRefused
	t.Note(p, "posting and polling are not traced: "+why.Error())
}

// dataOf reports whether probes have to trace the data verbs of the thread's process, and
// returns the thread's registers. A Go program that can report its data verbs is asked to.
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

// attachData inserts probes into a running process. All its threads are stopped; th is one of
// them.
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

// noteEmpty emits notes about the polls of a process that found nothing and have not been
// reported yet.
func (t *tracer) noteEmpty(p *tracee.Process) {
	t.goPrograms.NoteEmpty(p)
	t.probes.NoteEmpty(p)
}

// trap handles the report of a probe or of a Go program.
func (t *tracer) trap(th *tracee.Thread, info *ptrace.SyscallInfo) {
	if told, ok := tracing.CallOf(info.Args); ok {
		t.goPrograms.Trap(th, told)
		return
	}
	t.probes.Trap(th, info)
}

// These methods implement the interface verbs of package calls.

// Succeeded inserts probes into the tables of pointers that exist by now.
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

// Destroyed makes the probes forget an object.
func (t *tracer) Destroyed(pid int, user uint64) {
	if p := t.Processes[pid]; p != nil {
		t.probes.Forget(p, user)
	}
}

// Attached implements the interface host of package attach. It traces the data verbs of a
// process that was attached to.
func (t *tracer) Attached(p *tracee.Process, at *tracee.Thread) {
	t.stops.ReadOwn(p)
	if at != nil {
		t.attachData(at)
	}
}

// These methods implement the interface inserts of package stops.

// Limited ends the tracing of data verbs if the process's filters forbid it.
func (t *tracer) Limited(p *tracee.Process) { t.checkData(p) }

// Inserts reports whether a process has inserted code.
func (t *tracer) Inserts(p *tracee.Process) bool { return t.probes.Has(p) }

// InInsert reports whether a stopped thread is in inserted code.
func (t *tracer) InInsert(th *tracee.Thread) bool { return t.probes.InProbe(th) }
