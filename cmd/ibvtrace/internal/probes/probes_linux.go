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

// tracing.Magic, in the upper half of a getpid's sixth argument, makes it a trap. The
// lower half: the probe in bits 0 to 15, a small argument in 16 to 23, and trapAfter.
const trapAfter = 1 << 31

// A probeKind is what a probe does.
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

// A probe is one that a process has in its memory.
type probe struct {
	op       *operation
	function uint64
	addr     uint64
}

// The memory of the probes: counters, which are written, then code.
const (
	counterBytes = 4096
	codeBytes    = 128 << 10
	probeBytes   = 512 // the largest has 288 and four words
	maxProbes    = min(counterBytes/8, codeBytes/probeBytes)
)

// A Probes puts probes into the programs of a set.
type Probes struct {
	*tracee.Set
	of    map[*tracee.Process]*dataTrace
	posts map[*tracee.Thread]*postState // what they are doing
}

// New returns one for the programs of a set.
func New(s *tracee.Set) *Probes {
	return &Probes{Set: s, of: make(map[*tracee.Process]*dataTrace), posts: make(map[*tracee.Thread]*postState)}
}

// Forked has a process's child have its parent's probes, of which it has a copy.
func (t *Probes) Forked(parent, child *tracee.Process) {
	if d := t.of[parent]; d != nil {
		c := d.clone()
		c.told = c.emptyPolls(child.PID) // the rest is the parent's to tell
		t.of[child] = c
	}
}

// Gone forgets a process.
func (t *Probes) Gone(p *tracee.Process) { delete(t.of, p) }

// ThreadGone forgets a thread.
func (t *Probes) ThreadGone(th *tracee.Thread) { delete(t.posts, th) }

// Has reports whether anything was put into a process.
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

// data returns how a process's data verbs are traced.
func (t *Probes) data(p *tracee.Process) *dataTrace {
	d := t.of[p]
	if d == nil {
		d = newDataTrace()
		t.of[p] = d
	}
	return d
}

// doing returns what a thread is doing in data verbs.
func (t *Probes) doing(th *tracee.Thread) *postState {
	s := t.posts[th]
	if s == nil {
		s = new(postState)
		t.posts[th] = s
	}
	return s
}

// A dataTrace is how a process's data verbs are traced.
type dataTrace struct {
	base     uint64 // of the memory, 0: none as yet
	probes   []probe
	patched  map[uint64]uint64       // pointers that lead to probes: where they led
	contexts map[uint64]*tracee.File // by address of the struct ibv_context
	tried    map[*tracee.File]int    // how often its context was not found
	told     uint64                  // empty polls that have been told of
	pending  map[uint64]uint16       // objects of which the pointers are not set yet: their class
}

func newDataTrace() *dataTrace {
	return &dataTrace{
		patched: make(map[uint64]uint64), contexts: make(map[uint64]*tracee.File),
		tried: make(map[*tracee.File]int), pending: make(map[uint64]uint16),
	}
}

// clone returns what holds for a process's child, which has a copy of its memory.
func (d *dataTrace) clone() *dataTrace {
	c := *d
	c.probes = append([]probe(nil), d.probes...)
	c.patched, c.contexts = maps.Clone(d.patched), maps.Clone(d.contexts)
	c.tried, c.pending = maps.Clone(d.tried), maps.Clone(d.pending)
	return &c
}

func (d *dataTrace) code(i int) uint64 { return d.base + counterBytes + uint64(i*probeBytes) }

func (d *dataTrace) counter(i int) uint64 { return d.base + uint64(8*i) }

// isProbe reports whether an address is one of ours.
func (d *dataTrace) isProbe(addr uint64) bool {
	return d.base != 0 && addr >= d.base && addr < d.base+counterBytes+codeBytes
}

// mapProbes has the process map memory for probes.
func mapProbes(in *ptrace.Injector, d *dataTrace) error {
	size := uint64(counterBytes + codeBytes)
	base, err := in.Call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	// Never writable and executable at once.
	if _, err := in.Call(unix.SYS_MPROTECT, base+counterBytes, codeBytes, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return os.NewSyscallError("mprotect", err)
	}
	d.base = base
	return nil
}

// probeFor returns the address of a probe that stands for a function.
func (d *dataTrace) probeFor(tid int, op *operation, function uint64) (uint64, error) {
	for i := range d.probes {
		if d.probes[i].op == op && d.probes[i].function == function {
			return d.probes[i].addr, nil
		}
	}
	i := len(d.probes)
	if i == maxProbes {
		return 0, errors.New("too many functions post and poll")
	}
	b := append([]byte(nil), *op.kind.code...)
	word := uint64(tracing.Magic)<<32 | uint64(i)
	for _, w := range []uint64{function, word, word | trapAfter, d.counter(i)} {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	// The memory is not writable; a tracer may write there all the same.
	if _, err := unix.PtracePokeData(tid, uintptr(d.code(i)), b); err != nil {
		return 0, os.NewSyscallError("ptrace", err)
	}
	d.probes = append(d.probes, probe{op, function, d.code(i)})
	return d.code(i), nil
}

// patch makes the pointers of a table at addr lead to probes.
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

// maxPatched bounds what is put back when ibvtrace lets go: programs make QPs for
// ever, and a pointer that stays leads to a probe that does no harm.
const maxPatched = 1 << 20

// unpatch puts the pointers back. Threads that are in a probe leave it in peace.
func unpatch(p *tracee.Process, d *dataTrace) {
	var b [8]byte
	for addr, function := range d.patched {
		if ptrace.ReadMemory(p.PID, addr, b[:]) == nil && d.isProbe(binary.NativeEndian.Uint64(b[:])) {
			ptrace.WritePointer(p.PID, addr, function)
		}
	}
	clear(d.patched)
}

// emptyPolls returns how often a process has polled in vain.
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

// untold returns how often it has done so since that was last asked.
func (d *dataTrace) untold(pid int) uint64 {
	n := d.emptyPolls(pid) - d.told
	if int64(n) <= 0 {
		return 0
	}
	d.told += n
	return n
}

// Trap handles what a probe tells.
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
			// A signal may come in between, and its handler post too.
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

// postState is what a thread is doing in data verbs.
type postState struct {
	calls    []*tracee.Call // that it is in, the innermost last
	building []*builder
}

// pop returns the call that returns now, nil if it was not seen to begin. Calls
// above it were left by longjmp or the like.
func (s *postState) pop(args [6]uint64) *tracee.Call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; c.TrapArgs[0] == args[0] && c.TrapArgs[1] == args[1] {
			s.calls = s.calls[:i]
			return c
		}
	}
	return nil
}
