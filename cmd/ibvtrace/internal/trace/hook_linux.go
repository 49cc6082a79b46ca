//go:build amd64 || arm64

package trace

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// The public layout of libibverbs' structs, <infiniband/verbs.h>. It has not changed
// since they were first published; newer fields follow the older.
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
	return readMemory(tid, addr+contextCmdFD, b[:]) == nil && isContext(b[:], fd)
}

// isContext looks at a context from cmd_fd on.
func isContext(b []byte, fd int) bool {
	return int(int32(binary.NativeEndian.Uint32(b))) == fd &&
		binary.NativeEndian.Uint64(b[contextCompat-contextCmdFD:]) == ^uint64(0)
}

// fdOf returns a descriptor of the process that is the file, -1 if there is none.
func (p *process) fdOf(f *file) int {
	for fd, g := range p.fds {
		if g == f {
			return fd
		}
	}
	return -1
}

// dataOf returns how a process's data verbs are traced, nil: they are not.
func (t *tracer) dataOf(p *process) *dataTrace {
	if !t.opt.Data {
		return nil
	}
	if p.data == nil {
		p.data = newDataTrace()
		t.checkData(p)
	}
	if p.data.failed {
		return nil
	}
	return p.data
}

// checkData ends the tracing of data verbs if the process's own filters do not allow
// what a probe calls.
func (t *tracer) checkData(p *process) {
	if p.data == nil || p.data.failed || p.allows(unix.SYS_GETPID, 0, 0, 0, 0, 0, tracing.Magic<<32) {
		return
	}
	base := p.data.base // where threads may still be
	t.endData(p)
	p.data = newDataTrace()
	p.data.failed, p.data.base = true, base
	t.note(p, "posting and polling are not traced: "+errFiltered.Error())
}

// maxTries bounds the search for a context: not every program has one.
const maxTries = 20

// maxPending bounds what waits for its pointers to be set.
const maxPending = 1 << 16

// afterVerb looks, at the end of a verb, for tables that have come to be. A thread is
// at the exit of a system call on a uverbs file. What the verb itself made is not
// ready yet: the library fills it in before the program has it, and before the next
// verb, but after it has mapped the object's queues.
func (t *tracer) afterVerb(th *thread, c *call) {
	d := t.dataOf(th.proc)
	if d == nil || c.file == nil || c.file.kind != fileUverbs {
		return
	}
	regs, err := getRegisters(th.tid)
	if err != nil || !regs.native() {
		return
	}
	if t.askGo(th.proc, d); d.goSwitch != 0 {
		return
	}
	f := c.file
	fd := th.proc.fdOf(f)
	if probePost == nil {
		return
	}
	context := d.contextOf(f)
	if context != 0 && !contextAt(th.tid, context, fd) {
		delete(d.contexts, context)
		context = 0
	}
	// What programs call their objects by is where libibverbs has them, and
	// those begin with the context.
	for addr := range d.pending {
		if context != 0 {
			break
		}
		if candidate, ok := readPointer(th.tid, addr); ok && contextAt(th.tid, candidate, fd) {
			context = candidate
		}
	}
	if context == 0 && d.tried[f] < maxTries {
		d.tried[f]++
		context = findContext(th.tid, &regs, fd)
	}
	if context != 0 {
		d.contexts[context] = f
		if d.base == 0 {
			if err := t.mapProbesAt(th, (*tracer).inject); err != nil {
				return
			}
		}
		t.patchAll(th, d, context)
		if c.name == "modify_qp" {
			t.patchQP(th, d, c)
		}
	}
	for _, k := range c.made {
		o := f.objects[k]
		switch k.class {
		case uapi.UVERBS_OBJECT_QP, uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_OBJECT_WQ:
			if o.user != 0 && len(d.pending) < maxPending {
				d.pending[o.user] = k.class
			}
		}
	}
}

// contextOf returns the address of a file's context, 0 if it is not known.
func (d *dataTrace) contextOf(f *file) uint64 {
	for addr, g := range d.contexts {
		if g == f {
			return addr
		}
	}
	return 0
}

// mapProbesAt maps memory for probes, once. The way to inject depends on the stop.
func (t *tracer) mapProbesAt(th *thread, way func(*tracer, int) (*injector, error)) error {
	d := th.proc.data
	in, err := way(t, th.tid)
	if err == nil {
		err = t.mapProbes(in, d)
		if err == errDied {
			return err
		}
		if err2 := in.done(); err == nil {
			err = err2
		}
	}
	if err != nil {
		d.failed = true
		t.note(th.proc, "posting and polling are not traced: "+err.Error())
	}
	return err
}

// patchAll sets the pointers of a context and of the objects that waited for it.
func (t *tracer) patchAll(th *thread, d *dataTrace, context uint64) {
	executable := executableOf(th.tid)
	t.patch(th, context, contextOps, executable)
	for addr, class := range d.pending {
		if owner, ok := readPointer(th.tid, addr); !ok || d.contexts[owner] == nil {
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

// patchQP sets the pointers of a QP that is about to be used: whoever sends modifies
// it first.
func (t *tracer) patchQP(th *thread, d *dataTrace, c *call) {
	v := find(c.args, "qp")
	if v == nil {
		return
	}
	if o := c.file.objects[objectKey{uapi.UVERBS_OBJECT_QP, v.Num}]; o != nil && o.user != 0 {
		if owner, ok := readPointer(th.tid, o.user); ok && d.contexts[owner] != nil {
			t.patch(th, o.user, qpOps, executableOf(th.tid))
		}
	}
}

// forget forgets the pointers of an object that is gone.
func (d *dataTrace) forget(addr uint64) {
	delete(d.pending, addr)
	for _, ops := range [][]operation{qpOps, batchOps, cqOps, wqOps} {
		for i := range ops {
			delete(d.patched, addr+ops[i].offset)
		}
	}
}

func readPointer(tid int, addr uint64) (uint64, bool) {
	var b [8]byte
	if addr == 0 || readMemory(tid, addr, b[:]) != nil {
		return 0, false
	}
	return binary.NativeEndian.Uint64(b[:]), true
}

// executableOf returns what tells whether there is code at an address.
func executableOf(tid int) func(uint64) bool {
	var code []mapping // read when it is needed first
	return func(addr uint64) bool {
		if code == nil {
			all, err := mappings(tid)
			if err != nil {
				return false
			}
			code = slices.DeleteFunc(all, func(m mapping) bool { return !m.exec })
		}
		return slices.ContainsFunc(code, func(m mapping) bool { return addr >= m.start && addr < m.end })
	}
}

// findContext looks for the context where the library that calls the kernel must have
// it: in registers and on the stack.
func findContext(tid int, regs *registers, fd int) uint64 {
	maps, err := mappings(tid)
	if err != nil {
		return 0
	}
	writable := slices.DeleteFunc(maps, func(m mapping) bool { return !m.write || !m.read || !m.private })
	words := regs.general()
	const depth = 8192
	for _, m := range writable {
		if sp := regs.sp() &^ 7; sp >= m.start && sp < m.end {
			b := make([]byte, min(depth, m.end-sp))
			if readMemory(tid, sp, b) == nil {
				for ; len(b) >= 8; b = b[8:] {
					words = append(words, binary.NativeEndian.Uint64(b))
				}
			}
		}
	}
	slices.Sort(words)
	for _, w := range slices.Compact(words) {
		if w%8 == 0 && slices.ContainsFunc(writable, func(m mapping) bool { return w >= m.start && w+contextBytes <= m.end }) &&
			contextAt(tid, w, fd) {
			return w
		}
	}
	return 0
}

// Limits for the search through all the memory of a program that runs.
const (
	maxSearched = 4 << 30
	searchChunk = 1 << 20
)

// attachData sets the pointers of a process that runs; all its threads are stopped,
// th is one of them. The contexts are found by what they look like, and their objects
// by where they point.
func (t *tracer) attachData(th *thread) {
	p := th.proc
	d := t.dataOf(p)
	if d == nil {
		return
	}
	regs, err := getRegisters(th.tid)
	if err != nil || !regs.native() {
		return
	}
	if t.askGo(p, d); d.goSwitch != 0 || probePost == nil {
		return
	}
	files := make(map[int]*file)
	for fd, f := range p.fds {
		if f.kind == fileUverbs {
			files[fd] = f
		}
	}
	if len(files) == 0 {
		return // found by the verbs it calls, should it open one
	}
	search(th.tid, func(addr uint64, b []byte) {
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
	executable := executableOf(th.tid)
	for addr := range d.contexts {
		if post, ok := readPointer(th.tid, addr+contextOps[0].offset); !ok || !executable(post) {
			delete(d.contexts, addr) // only looks like one
		}
	}
	if len(d.contexts) == 0 {
		return
	}
	if err := t.mapProbesAt(th, (*tracer).injectAnywhere); err != nil {
		return
	}
	for addr := range d.contexts {
		t.patch(th, addr, contextOps, executable)
	}
	search(th.tid, func(addr uint64, b []byte) {
		for i := 0; i+qpBytes <= len(b); i += 8 {
			f := d.contexts[binary.NativeEndian.Uint64(b[i:])]
			if f == nil {
				continue
			}
			at := addr + uint64(i)
			if o := f.objects[objectKey{uapi.UVERBS_OBJECT_QP, uint64(binary.NativeEndian.Uint32(b[i+qpHandle:]))}]; o != nil &&
				binary.NativeEndian.Uint32(b[i+qpNumber:]) < 1<<24 && binary.NativeEndian.Uint32(b[i+qpState:]) <= 7 {
				if cq, ok := readPointer(th.tid, at+24); ok && d.owns(th.tid, cq) {
					o.user, o.number = at, u32(b[i+qpNumber:])
					t.patch(th, at, qpOps, executable)
				}
			}
			if o := f.objects[objectKey{uapi.UVERBS_OBJECT_CQ, uint64(binary.NativeEndian.Uint32(b[i+cqHandle:]))}]; o != nil && o.user == 0 {
				if start, ok := readPointer(th.tid, at+cqOps[0].offset); ok && executable(start) {
					o.user = at
					t.patch(th, at, cqOps, executable)
				}
			}
			if o := f.objects[objectKey{uapi.UVERBS_OBJECT_WQ, uint64(binary.NativeEndian.Uint32(b[i+wqHandle:]))}]; o != nil && o.user == 0 {
				pd, post := binary.NativeEndian.Uint64(b[i+16:]), binary.NativeEndian.Uint64(b[i+int(wqOps[0].offset):])
				if d.owns(th.tid, pd) && executable(post) {
					o.user = at
					t.patch(th, at, wqOps, executable)
				}
			}
		}
	})
}

// owns reports whether what is at addr begins with the address of a context.
func (d *dataTrace) owns(tid int, addr uint64) bool {
	context, ok := readPointer(tid, addr)
	return ok && d.contexts[context] != nil
}

// search calls f with the memory in which a program has data of its own. The parts
// overlap by what a context needs.
func search(tid int, f func(addr uint64, b []byte)) {
	maps, err := mappings(tid)
	if err != nil {
		return
	}
	b := make([]byte, searchChunk+contextBytes)
	left := uint64(maxSearched)
	for _, m := range maps {
		if !m.read || !m.write || !m.private || m.path == "[stack]" {
			continue
		}
		for addr := m.start; addr < m.end; addr += searchChunk {
			n := min(uint64(len(b)), m.end-addr)
			if left < n {
				return
			}
			left -= n
			if readMemory(tid, addr, b[:n]) == nil {
				f(addr, b[:n])
			}
		}
	}
}

// endData stops tracing a process's data verbs.
func (t *tracer) endData(p *process) {
	d := p.data
	if d == nil {
		return
	}
	if d.goSwitch != 0 {
		writeUint32(p.pid, d.goSwitch+switchOn, 0)
	}
	t.noteEmpty(p)
	t.unpatch(p)
	p.data = nil
}

// noteEmpty says how often a process polled in vain that nothing has said yet.
func (t *tracer) noteEmpty(p *process) {
	d := p.data
	if n := d.emptyPolls(p.pid) - d.told; n > 0 && int64(n) > 0 {
		d.told += n
		t.note(p, "polled in vain "+plural(n, "time"))
	}
}
