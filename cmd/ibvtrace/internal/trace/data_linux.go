//go:build amd64 || arm64

package trace

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing"
)

// Posting and polling go past the kernel: libibverbs' functions are inline and call
// through tables of pointers, which have a public layout, in the context, in
// extended QPs and in extended CQs. To trace them the pointers are made to lead to
// probes. A probe is a piece of code, in memory that the program is made to map, that
// tells the tracer and calls the function: what a uprobe is, but without a change to
// the program's code, so that threads need not stop for it and nothing needs stepping
// over.
//
// A probe tells by a trap: a getpid, which takes no arguments and so can carry some.
// The kernel stops there for the tracer as at other system calls. When no tracer is
// left, it is a getpid.

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
	before func(t *tracer, th *thread, c *call, args [6]uint64)
	after  func(t *tracer, th *thread, c *call, args [6]uint64)
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

// A dataTrace is how a process's data verbs are traced.
type dataTrace struct {
	base     uint64 // of the memory, 0: none as yet
	failed   bool   // to get any
	probes   []probe
	patched  map[uint64]uint64 // pointers that lead to probes: where they led
	contexts map[uint64]*file  // by address of the struct ibv_context
	tried    map[*file]int     // how often its context was not found
	told     uint64            // empty polls that have been told of
	asked    bool              // to tell, if it is on this project's library
	goSwitch uint64            // where that is asked, 0: it is not
	pending  map[uint64]uint16 // objects of which the pointers are not set yet: their class
}

func newDataTrace() *dataTrace {
	return &dataTrace{
		patched: make(map[uint64]uint64), contexts: make(map[uint64]*file),
		tried: make(map[*file]int), pending: make(map[uint64]uint16),
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

func (d *dataTrace) code(i int) uint64    { return d.base + counterBytes + uint64(i*probeBytes) }
func (d *dataTrace) counter(i int) uint64 { return d.base + uint64(8*i) }

// isProbe reports whether an address is one of ours.
func (d *dataTrace) isProbe(addr uint64) bool {
	return d.base != 0 && addr >= d.base && addr < d.base+counterBytes+codeBytes
}

// mapProbes has the process map memory for probes.
func (t *tracer) mapProbes(in *injector, d *dataTrace) error {
	size := uint64(counterBytes + codeBytes)
	base, err := in.call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	// Never writable and executable at once.
	if _, err := in.call(unix.SYS_MPROTECT, base+counterBytes, codeBytes, unix.PROT_READ|unix.PROT_EXEC); err != nil {
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
func (t *tracer) patch(th *thread, addr uint64, ops []operation, executable func(uint64) bool) error {
	d := th.proc.data
	last := ops[len(ops)-1].offset + 8
	b := make([]byte, last)
	if err := readMemory(th.tid, addr, b); err != nil {
		return err
	}
	for i := range ops {
		op := &ops[i]
		function := binary.NativeEndian.Uint64(b[op.offset:])
		if function == 0 || d.isProbe(function) || !executable(function) {
			continue
		}
		to, err := d.probeFor(th.tid, op, function)
		if err != nil {
			return err
		}
		if err := writePointer(th.tid, addr+op.offset, to); err != nil {
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

func writePointer(tid int, addr, to uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], to)
	return writeMemory(tid, addr, b[:])
}

// unpatch puts the pointers back. Threads that are in a probe leave it in peace.
func (t *tracer) unpatch(p *process) {
	d := p.data
	var b [8]byte
	for addr, function := range d.patched {
		if readMemory(p.pid, addr, b[:]) == nil && d.isProbe(binary.NativeEndian.Uint64(b[:])) {
			writePointer(p.pid, addr, function)
		}
	}
	clear(d.patched)
}

// emptyPolls returns how often a process has polled in vain.
func (d *dataTrace) emptyPolls(pid int) uint64 {
	var n uint64
	if d.goSwitch != 0 {
		n, _ = readPointer(pid, d.goSwitch+switchEmpty)
	}
	b := make([]byte, 8*len(d.probes))
	if readMemory(pid, d.base, b) != nil {
		return n
	}
	for ; len(b) > 0; b = b[8:] {
		n += binary.NativeEndian.Uint64(b)
	}
	return n
}

// trap handles what a probe tells.
func (t *tracer) trap(th *thread, info *syscallInfo) {
	if told, ok := tracing.CallOf(info.args); ok {
		t.goTrap(th, told)
		return
	}
	word := info.args[5]
	d := th.proc.data
	if d == nil || !d.isProbe(info.ip) {
		return
	}
	i := int(word & 0xffff)
	if i >= len(d.probes) {
		return
	}
	op := d.probes[i].op
	info.args[5] = word >> 16 & 0xff
	if word&trapAfter == 0 {
		c := t.newCall(th, kindData, op.name)
		if op.kind == kindPost {
			// A signal may come in between, and its handler post too.
			if len(th.posts.calls) < maxNested {
				th.posts.calls = append(th.posts.calls, c)
			}
			c.trapArgs = info.args
		}
		op.before(t, th, c, info.args)
		c.resumed = time.Now()
		return
	}
	var c *call
	if op.kind == kindPost {
		c = th.posts.pop(info.args)
	}
	if c == nil {
		c = t.newCall(th, kindData, op.name)
		if op.kind == kindPost {
			op.before(t, th, c, info.args)
		}
	} else {
		c.duration, c.timed = t.now.Sub(c.resumed), true
	}
	c.returned = true
	c.ret = int64(int32(info.args[3]))
	op.after(t, th, c, info.args)
	t.emit(c)
}

const maxNested = 8

// postState is what a thread is doing in data verbs.
type postState struct {
	calls    []*call // that it is in, the innermost last
	building []*builder
}

// pop returns the call that returns now, nil if it was not seen to begin. Calls
// above it were left by longjmp or the like.
func (s *postState) pop(args [6]uint64) *call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; c.trapArgs[0] == args[0] && c.trapArgs[1] == args[1] {
			s.calls = s.calls[:i]
			return c
		}
	}
	return nil
}
