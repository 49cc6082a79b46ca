//go:build amd64 || arm64

package probes

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
)

// A getpid is a trap if tracing.Magic is in the upper half of its sixth argument. The lower
// half is the trap word: the probe's index in bits 0 to 15, an argument in bits 16 to 23, and
// trapAfter in a trap after the call.
const trapAfter = 1 << 31

// A probeKind is the code of a probe.
type probeKind struct{ code *[]byte }

var (
	kindPost      = probeKind{&probePost}
	kindPoll      = probeKind{&probePoll}
	kindCall      = probeKind{&probeCall}
	kindStartPoll = probeKind{&probeStartPoll}
)

// An operation is a function in one of the tables.
type operation struct {
	name   string
	offset uint64 // of its pointer
	kind   probeKind
	before func(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64)
	after  func(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64)
}

// A probe is a probe in a process's memory.
type probe struct {
	op       *operation
	function uint64
	addr     uint64
}

// The memory of the probes consists of writable counters and of code, in pages of their own.
const (
	counterBytes = 64 << 10 // the largest page
	codeBytes    = 128 << 10
	probeBytes   = 512 // the largest probe has 288 bytes and four words
	maxProbes    = min(counterBytes/8, codeBytes/probeBytes)
)

// A Probes inserts probes into the programs of a set.
type Probes struct {
	*tracee.Set
	of    map[*tracee.Process]*dataTrace
	posts map[*tracee.Thread]*postState
}

// New returns a Probes for a set.
func New(s *tracee.Set) *Probes {
	return &Probes{Set: s, of: make(map[*tracee.Process]*dataTrace), posts: make(map[*tracee.Thread]*postState)}
}

// Forked copies the state of a process to its child, which has a copy of the probes.
func (t *Probes) Forked(parent, child *tracee.Process) {
	if d := t.of[parent]; d != nil {
		c := d.clone()
		c.told = c.emptyPolls(child.PID) // these are shown for the parent
		t.of[child] = c
	}
}

// Gone forgets a process.
func (t *Probes) Gone(p *tracee.Process) { delete(t.of, p) }

// ThreadGone forgets a thread.
func (t *Probes) ThreadGone(th *tracee.Thread) { delete(t.posts, th) }

// Has reports whether a process may have probes.
func (t *Probes) Has(p *tracee.Process) bool { return t.of[p] != nil }

// InProbe reports whether a stopped thread is in a probe, or in a function from which it
// returns to one.
func (t *Probes) InProbe(th *tracee.Thread) bool {
	if s := t.posts[th]; s != nil && len(s.calls) > 0 {
		return true
	}
	d := t.of[th.Proc]
	if d == nil {
		return false
	}
	regs, err := ptrace.GetRegisters(th.TID)
	return err == nil && d.isProbe(regs.PC())
}

// data returns the state of a process.
func (t *Probes) data(p *tracee.Process) *dataTrace {
	d := t.of[p]
	if d == nil {
		d = newDataTrace()
		t.of[p] = d
	}
	return d
}

// doing returns the state of a thread.
func (t *Probes) doing(th *tracee.Thread) *postState {
	s := t.posts[th]
	if s == nil {
		s = new(postState)
		t.posts[th] = s
	}
	return s
}

// A dataTrace is the state of a process.
type dataTrace struct {
	base     uint64 // address of the memory; 0 if it is not mapped yet
	probes   []probe
	patched  map[uint64]uint64       // the original values of pointers, by address
	contexts map[uint64]*tracee.File // by address of the struct ibv_context
	tried    map[*tracee.File]int    // unsuccessful searches for the file's context
	told     uint64                  // empty polls that have been shown
	pending  map[uint64]uint16       // classes of objects whose pointers are not patched yet, by address
}

func newDataTrace() *dataTrace {
	return &dataTrace{
		patched: make(map[uint64]uint64), contexts: make(map[uint64]*tracee.File),
		tried: make(map[*tracee.File]int), pending: make(map[uint64]uint16),
	}
}

// clone returns a copy for a process's child.
func (d *dataTrace) clone() *dataTrace {
	c := *d
	c.probes = append([]probe(nil), d.probes...)
	c.patched, c.contexts = maps.Clone(d.patched), maps.Clone(d.contexts)
	c.tried, c.pending = maps.Clone(d.tried), maps.Clone(d.pending)
	return &c
}

func (d *dataTrace) code(i int) uint64 { return d.base + counterBytes + uint64(i*probeBytes) }

func (d *dataTrace) counter(i int) uint64 { return d.base + uint64(8*i) }

// isProbe reports whether an address is in the memory of the probes.
func (d *dataTrace) isProbe(addr uint64) bool {
	return d.base != 0 && addr >= d.base && addr < d.base+counterBytes+codeBytes
}

// mapProbes makes the process map memory for probes.
func mapProbes(in *ptrace.Injector, d *dataTrace) error {
	size := uint64(counterBytes + codeBytes)
	base, err := in.Call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	// No memory may be both writable and executable.
	if _, err := in.Call(unix.SYS_MPROTECT, base+counterBytes, codeBytes, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return os.NewSyscallError("mprotect", err)
	}
	d.base = base
	return nil
}

// probeFor returns the address of a probe that calls the function. It writes the probe if
// there is none yet.
func (d *dataTrace) probeFor(tid int, op *operation, function uint64) (uint64, error) {
	for i := range d.probes {
		if d.probes[i].op == op && d.probes[i].function == function {
			return d.probes[i].addr, nil
		}
	}
	i := len(d.probes)
	if i == maxProbes {
		return 0, errors.New("too many functions that post and poll")
	}
	b := append([]byte(nil), *op.kind.code...)
	word := uint64(tracing.Magic)<<32 | uint64(i)
	for _, w := range []uint64{function, word, word | trapAfter, d.counter(i)} {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	// A tracer can write to read-only memory.
	if _, err := unix.PtracePokeData(tid, uintptr(d.code(i)), b); err != nil {
		return 0, os.NewSyscallError("ptrace", err)
	}
	d.probes = append(d.probes, probe{op, function, d.code(i)})
	return d.code(i), nil
}

// patch replaces the pointers of the struct at addr by those of probes.
func (t *Probes) patch(th *tracee.Thread, addr uint64, ops []operation, executable func(uint64) bool) error {
	d := t.data(th.Proc)
	last := ops[len(ops)-1].offset + 8
	b := make([]byte, last)
	if err := ptrace.ReadMemory(th.TID, addr, b); err != nil {
		return err
	}
	for i := range ops {
		op := &ops[i]
		function := binary.NativeEndian.Uint64(b[op.offset:])
		if function == 0 || d.isProbe(function) || !executable(function) {
			continue
		}
		to, err := d.probeFor(th.TID, op, function)
		if err != nil {
			return err
		}
		if err := ptrace.WritePointer(th.TID, addr+op.offset, to); err != nil {
			return err
		}
		if len(d.patched) < maxPatched {
			d.patched[addr+op.offset] = function
		}
	}
	return nil
}

// maxPatched bounds the pointers that are restored on detaching, since a program may create
// any number of QPs. A pointer that is not restored does no harm: its probe still calls the
// function.
const maxPatched = 1 << 20

// unpatch restores the pointers. The probes remain for threads that are in one.
func unpatch(p *tracee.Process, d *dataTrace) {
	var b [8]byte
	for addr, function := range d.patched {
		if ptrace.ReadMemory(p.PID, addr, b[:]) == nil && d.isProbe(binary.NativeEndian.Uint64(b[:])) {
			ptrace.WritePointer(p.PID, addr, function)
		}
	}
	clear(d.patched)
}

// emptyPolls returns the number of a process's polls that found nothing.
func (d *dataTrace) emptyPolls(pid int) uint64 {
	var n uint64
	b := make([]byte, 8*len(d.probes))
	if ptrace.ReadMemory(pid, d.base, b) != nil {
		return n
	}
	for ; len(b) > 0; b = b[8:] {
		n += binary.NativeEndian.Uint64(b)
	}
	return n
}

// unreported returns the number of empty polls since the last call.
func (d *dataTrace) unreported(pid int) uint64 {
	n := d.emptyPolls(pid) - d.told
	if int64(n) <= 0 {
		return 0
	}
	d.told += n
	return n
}

// Trap handles a probe's trap.
func (t *Probes) Trap(th *tracee.Thread, info *ptrace.SyscallInfo) {
	word := info.Args[5]
	d := t.of[th.Proc]
	if d == nil || !d.isProbe(info.IP) {
		return
	}
	i := int(word & 0xffff)
	if i >= len(d.probes) {
		return
	}
	op := d.probes[i].op
	info.Args[5] = word >> 16 & 0xff
	if word&trapAfter == 0 {
		c := t.NewCall(th, tracee.KindData, op.name)
		if op.kind == kindPost {
			// Calls nest if a signal handler posts during a call.
			if s := t.doing(th); len(s.calls) < maxNested {
				s.calls = append(s.calls, c)
			}
			c.TrapArgs = info.Args
		}
		op.before(t, th, c, info.Args)
		c.Resumed = time.Now()
		return
	}
	var c *tracee.Call
	if op.kind == kindPost {
		c = t.doing(th).pop(info.Args)
	}
	if c == nil {
		c = t.NewCall(th, tracee.KindData, op.name)
		if op.kind == kindPost {
			op.before(t, th, c, info.Args)
		}
	} else {
		c.Duration, c.Timed = t.Now.Sub(c.Resumed), true
	}
	c.Returned = true
	c.Ret = int64(int32(info.Args[3]))
	op.after(t, th, c, info.Args)
	t.Emit(c)
}

const maxNested = 8

// postState is the state of a thread.
type postState struct {
	calls    []*tracee.Call // current calls, the innermost last
	building []*builder
}

// pop returns the call that returns now, or nil if its entry was not traced. It drops inner
// calls, which longjmp may have left.
func (s *postState) pop(args [6]uint64) *tracee.Call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; c.TrapArgs[0] == args[0] && c.TrapArgs[1] == args[1] {
			s.calls = s.calls[:i]
			return c
		}
	}
	return nil
}
