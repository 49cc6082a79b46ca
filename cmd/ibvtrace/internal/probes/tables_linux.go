//go:build amd64 || arm64

package probes

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/uapi"
)

// The public layout of libibverbs' structs, <infiniband/verbs.h>. It is stable: new fields
// are added at the end.
const (
	contextCmdFD  = 264
	contextCompat = 280 + mutexBytes // abi_compat: all ones in a verbs_context
	contextBytes  = contextCompat + 8

	qpContext = 0
	qpHandle  = 48
	qpNumber  = 52
	qpState   = 56
	qpType    = 60
	qpBytes   = 64
	qpExWRID  = 64 + mutexBytes + condBytes + 8 + 8 // behind the base and comp_mask
	qpExFlags = qpExWRID + 8
	qpExFuncs = qpExWRID + 16

	cqHandle   = 24
	cqExStatus = 32 + mutexBytes + condBytes + 8 + 4
	cqExWRID   = cqExStatus + 4
	cqExFuncs  = cqExWRID + 8

	srqHandle = 24
	wqHandle  = 36
	ahHandle  = 16
	mwHandle  = 20
	condBytes = 48
)

// contextAt reports whether a struct ibv_context of an open file is at addr.
func contextAt(tid int, addr uint64, fd int) bool {
	var b [contextBytes - contextCmdFD]byte
	return ptrace.ReadMemory(tid, addr+contextCmdFD, b[:]) == nil && isContext(b[:], fd)
}

// isContext reports whether b is such a context, from cmd_fd on.
func isContext(b []byte, fd int) bool {
	return int(int32(binary.NativeEndian.Uint32(b))) == fd &&
		binary.NativeEndian.Uint64(b[contextCompat-contextCmdFD:]) == ^uint64(0)
}

// maxTries bounds the searches for a context, which not every program has.
const maxTries = 20

// maxPending bounds the objects whose pointers are not patched yet.
const maxPending = 1 << 16

// AfterVerb patches the tables of new objects. The thread is at the exit of a verb. The tables
// of objects that the verb itself created are not set yet: the library sets them after it has
// mapped the object's queues, before the program's next verb.
func (t *Probes) AfterVerb(th *tracee.Thread, c *tracee.Call, regs *ptrace.Registers) error {
	f := c.File
	fd := th.Proc.FDOf(f)
	d := t.data(th.Proc)
	context := d.contextOf(f)
	if context != 0 && !contextAt(th.TID, context, fd) {
		delete(d.contexts, context)
		context = 0
	}
	// With libibverbs, an object's user_handle is the address of its struct, which begins
	// with the address of the context.
	for addr := range d.pending {
		if context != 0 {
			break
		}
		if candidate, ok := ptrace.ReadPointer(th.TID, addr); ok && contextAt(th.TID, candidate, fd) {
			context = candidate
		}
	}
	if context == 0 && d.tried[f] < maxTries {
		d.tried[f]++
		context = findContext(th.TID, regs, fd)
	}
	if context != 0 {
		d.contexts[context] = f
		if d.base == 0 {
			if err := t.mapProbesAt(d, th, t.Inject); err != nil {
				return err
			}
		}
		t.patchAll(th, d, context)
		if c.Name == "modify_qp" {
			t.patchQP(th, d, c)
		}
	}
	for _, k := range c.Made {
		o := f.Objects[k]
		switch k.Class {
		case uapi.UVERBS_OBJECT_QP, uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_OBJECT_WQ:
			if o.User != 0 && len(d.pending) < maxPending {
				d.pending[o.User] = k.Class
			}
		}
	}
	return nil
}

// contextOf returns the address of a file's context, or 0 if it is not known.
func (d *dataTrace) contextOf(f *tracee.File) uint64 {
	for addr, g := range d.contexts {
		if g == f {
			return addr
		}
	}
	return 0
}

// mapProbesAt maps memory for probes. way returns an injector for the thread's stop.
func (t *Probes) mapProbesAt(d *dataTrace, th *tracee.Thread, way func(*tracee.Thread) (*ptrace.Injector, error)) error {
	in, err := way(th)
	if err != nil {
		return err
	}
	err = mapProbes(in, d)
	if err == ptrace.ErrDied {
		return err
	}
	if err2 := in.Done(); err == nil {
		err = err2
	}
	return err
}

// patchAll patches the tables of a context and of pending objects.
func (t *Probes) patchAll(th *tracee.Thread, d *dataTrace, context uint64) {
	executable := ptrace.ExecutableOf(th.TID)
	t.patch(th, context, contextOps, executable)
	for addr, class := range d.pending {
		if owner, ok := ptrace.ReadPointer(th.TID, addr); !ok || d.contexts[owner] == nil {
			continue
		}
		delete(d.pending, addr)
		switch class {
		case uapi.UVERBS_OBJECT_CQ:
			t.patch(th, addr, cqOps, executable)
		case uapi.UVERBS_OBJECT_QP:
			t.patch(th, addr, qpOps, executable)
		case uapi.UVERBS_OBJECT_WQ:
			t.patch(th, addr, wqOps, executable)
		}
	}
}

// patchQP patches the table of a QP that was modified, as every QP is before it sends.
func (t *Probes) patchQP(th *tracee.Thread, d *dataTrace, c *tracee.Call) {
	v := tracee.Find(c.Args, "qp")
	if v == nil {
		return
	}
	if o := c.File.Objects[tracee.KeyOf(uapi.UVERBS_OBJECT_QP, v.Num)]; o != nil && o.User != 0 {
		if owner, ok := ptrace.ReadPointer(th.TID, o.User); ok && d.contexts[owner] != nil {
			t.patch(th, o.User, qpOps, ptrace.ExecutableOf(th.TID))
		}
	}
}

// Forget forgets the pointers of an object that was destroyed.
func (t *Probes) Forget(p *tracee.Process, addr uint64) {
	d := t.of[p]
	if d == nil {
		return
	}
	delete(d.pending, addr)
	for _, ops := range [][]operation{qpOps, batchOps, cqOps, wqOps} {
		for i := range ops {
			delete(d.patched, addr+ops[i].offset)
		}
	}
}

// findContext searches registers and stack for the address of the context, which the library
// has there when it calls the kernel.
func findContext(tid int, regs *ptrace.Registers, fd int) uint64 {
	maps, err := ptrace.Mappings(tid)
	if err != nil {
		return 0
	}
	writable := slices.DeleteFunc(maps, func(m ptrace.Mapping) bool { return !m.Write || !m.Read || !m.Private })
	words := regs.General()
	const depth = 8192
	for _, m := range writable {
		if sp := regs.SP() &^ 7; sp >= m.Start && sp < m.End {
			b := make([]byte, min(depth, m.End-sp))
			if ptrace.ReadMemory(tid, sp, b) == nil {
				for ; len(b) >= 8; b = b[8:] {
					words = append(words, binary.NativeEndian.Uint64(b))
				}
			}
		}
	}
	slices.Sort(words)
	for _, w := range slices.Compact(words) {
		if w%8 == 0 && slices.ContainsFunc(writable, func(m ptrace.Mapping) bool { return w >= m.Start && w+contextBytes <= m.End }) &&
			contextAt(tid, w, fd) {
			return w
		}
	}
	return 0
}

// Limits for the search through the memory of a running program.
const (
	maxSearched = 4 << 30
	searchChunk = 1 << 20
)

// Attach patches the tables of a running process. All its threads are stopped; th is one of
// them. Attach recognizes contexts by their contents, and objects by their pointer to a
// context.
func (t *Probes) Attach(th *tracee.Thread) error {
	p := th.Proc
	d := t.data(p)
	files := make(map[int]*tracee.File)
	for fd, f := range p.FDs {
		if f.Kind == tracee.FileUverbs {
			files[fd] = f
		}
	}
	if len(files) == 0 {
		return nil // AfterVerb handles files that the process opens later
	}
	search(th.TID, func(addr uint64, b []byte) {
		for i := 0; i+contextBytes <= len(b); i += 8 {
			if binary.NativeEndian.Uint64(b[i+contextCompat:]) != ^uint64(0) {
				continue
			}
			fd := int(int32(binary.NativeEndian.Uint32(b[i+contextCmdFD:])))
			if f := files[fd]; f != nil && binary.NativeEndian.Uint64(b[i+8:]) != 0 {
				d.contexts[addr+uint64(i)] = f
			}
		}
	})
	executable := ptrace.ExecutableOf(th.TID)
	for addr := range d.contexts {
		if post, ok := ptrace.ReadPointer(th.TID, addr+contextOps[0].offset); !ok || !executable(post) {
			delete(d.contexts, addr) // no context
		}
	}
	if len(d.contexts) == 0 {
		return nil
	}
	if err := t.mapProbesAt(d, th, t.InjectAnywhere); err != nil {
		return err
	}
	for addr := range d.contexts {
		t.patch(th, addr, contextOps, executable)
	}
	search(th.TID, func(addr uint64, b []byte) {
		for i := 0; i+qpBytes <= len(b); i += 8 {
			f := d.contexts[binary.NativeEndian.Uint64(b[i:])]
			if f == nil {
				continue
			}
			at := addr + uint64(i)
			if o := f.Objects[tracee.KeyOf(uapi.UVERBS_OBJECT_QP, uint64(binary.NativeEndian.Uint32(b[i+qpHandle:])))]; o != nil &&
				binary.NativeEndian.Uint32(b[i+qpNumber:]) < 1<<24 && binary.NativeEndian.Uint32(b[i+qpState:]) <= 7 {
				if cq, ok := ptrace.ReadPointer(th.TID, at+24); ok && d.owns(th.TID, cq) {
					o.User, o.Number = at, calls.U32(b[i+qpNumber:])
					t.patch(th, at, qpOps, executable)
				}
			}
			if o := f.Objects[tracee.KeyOf(uapi.UVERBS_OBJECT_CQ, uint64(binary.NativeEndian.Uint32(b[i+cqHandle:])))]; o != nil && o.User == 0 {
				if start, ok := ptrace.ReadPointer(th.TID, at+cqOps[0].offset); ok && executable(start) {
					o.User = at
					t.patch(th, at, cqOps, executable)
				}
			}
			if o := f.Objects[tracee.KeyOf(uapi.UVERBS_OBJECT_WQ, uint64(binary.NativeEndian.Uint32(b[i+wqHandle:])))]; o != nil && o.User == 0 {
				pd, post := binary.NativeEndian.Uint64(b[i+16:]), binary.NativeEndian.Uint64(b[i+int(wqOps[0].offset):])
				if d.owns(th.TID, pd) && executable(post) {
					o.User = at
					t.patch(th, at, wqOps, executable)
				}
			}
		}
	})
	return nil
}

// owns reports whether the struct at addr begins with the address of a context.
func (d *dataTrace) owns(tid int, addr uint64) bool {
	context, ok := ptrace.ReadPointer(tid, addr)
	return ok && d.contexts[context] != nil
}

// search calls f with the program's private writable memory, in chunks. They overlap by the
// size of a context.
func search(tid int, f func(addr uint64, b []byte)) {
	maps, err := ptrace.Mappings(tid)
	if err != nil {
		return
	}
	b := make([]byte, searchChunk+contextBytes)
	left := uint64(maxSearched)
	for _, m := range maps {
		if !m.Read || !m.Write || !m.Private || m.Path == "[stack]" {
			continue
		}
		for addr := m.Start; addr < m.End; addr += searchChunk {
			n := min(uint64(len(b)), m.End-addr)
			if left < n {
				return
			}
			left -= n
			if ptrace.ReadMemory(tid, addr, b[:n]) == nil {
				f(addr, b[:n])
			}
		}
	}
}

// End stops tracing a process's data verbs. Threads may still be in the probes.
func (t *Probes) End(p *tracee.Process) {
	d := t.of[p]
	if d == nil {
		return
	}
	t.NoteEmpty(p)
	unpatch(p, d)
	left := newDataTrace()
	left.base = d.base
	t.of[p] = left
}

// NoteEmpty emits a note about the polls of a process that found nothing and have not been
// shown yet.
func (t *Probes) NoteEmpty(p *tracee.Process) {
	if d := t.of[p]; d != nil {
		t.NoteEmptyPolls(p, d.unreported(p.PID))
	}
}
