//go:build amd64 || arm64

package kernel

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/bpf"
)

// A machine runs programs as the kernel would, with memory of a traced process and of the
// kernel. An access that the verifier would not allow fails the test.
type machine struct {
	t   *testing.T
	reg [11]uint64

	own    []area // what programs may access
	user   []area // the process's memory
	kernel []area

	pid, tid  uint32
	processes *area
	noRoom    bool // in the ring
	lost      *area
	buffer    *area
	cgroupID  uint64
	out       [][]byte
}

type area struct {
	at uint64
	b  []byte
}

// Descriptors of maps and addresses.
const (
	fdProcesses = 3 + iota
	fdBuffers
	fdLost
	fdRing
)

const (
	mapBase    = 0x1000_0000_0000
	bufferBase = 0x2000_0000_0000
	lostBase   = 0x3000_0000_0000
	ctxBase    = 0x4000_0000_0000
	taskBase   = 0x5000_0000_0000 // the running thread's task_struct
	regsBase   = 0x5100_0000_0000
	valueBase  = 0x6000_0000_0000
	stackTop   = 0x7000_0000_0000

	regsSize = 512
)

func newMachine(t *testing.T) *machine {
	return &machine{
		t: t, pid: 100, tid: 101,
		processes: &area{valueBase, make([]byte, pids)},
		lost:      &area{lostBase, make([]byte, 8)},
		buffer:    &area{bufferBase, make([]byte, recordBytes+dataBytes)},
		kernel:    []area{{regsBase, make([]byte, regsSize)}},
	}
}

// testSource returns a source with the machine's maps, and offsets of a kernel.
func testSource() *source {
	return &source{
		processes: fdProcesses, buffers: fdBuffers, lost: fdLost, ring: fdRing, self: 1,
		offsets: map[string]int{
			"file.f_inode": 32, "inode.i_rdev": 76, "vm_area_struct.vm_start": 8,
			"task_struct.tgid": 1268, "task_struct.exit_code": 1164, "task_struct.signal": 1848, "signal_struct.live": 4,
		},
	}
}

func (m *machine) watch(pid uint32) {
	m.processes.b[pid] = 1
}

func find(areas []area, at, n uint64) []byte {
	for _, a := range areas {
		if at >= a.at && at-a.at <= uint64(len(a.b)) && uint64(len(a.b))-(at-a.at) >= n {
			return a.b[at-a.at:][:n]
		}
	}
	return nil
}

// memory returns memory that the program may access.
func (m *machine) memory(at, n uint64) []byte {
	m.t.Helper()
	b := find(m.own, at, n)
	if b == nil {
		m.t.Fatalf("the program accesses %d bytes at %#x", n, at)
	}
	return b
}

// run runs a program with a context.
func (m *machine) run(a *bpf.Asm, ctx []byte) {
	m.t.Helper()
	code, err := a.Program()
	if err != nil {
		m.t.Fatal(err)
	}
	m.own = []area{*m.buffer, *m.lost, *m.processes, {ctxBase, ctx}, {stackTop - bpf.StackBytes, make([]byte, bpf.StackBytes)}}
	m.reg = [11]uint64{1: ctxBase, 10: stackTop}
	for pc, steps := 0, 0; ; pc, steps = pc+1, steps+1 {
		if steps > len(code) {
			m.t.Fatal("the program doesn't end")
		}
		i := code[8*pc : 8*pc+8]
		op, dst, src := i[0], i[1]&0xf, i[1]>>4
		off, imm := int(int16(binary.LittleEndian.Uint16(i[2:]))), int32(binary.LittleEndian.Uint32(i[4:]))
		operand := uint64(int64(imm))
		if op&0x08 != 0 {
			operand = m.reg[src]
		}
		n := map[byte]uint64{0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}[op&0x18]
		switch op & 7 {
		case 0: // a constant of 64 bits
			m.reg[dst] = uint64(uint32(imm)) | uint64(binary.LittleEndian.Uint32(code[8*pc+12:]))<<32
			switch {
			case src == 1:
				m.reg[dst] = mapBase + uint64(imm)
			case src == 2 && imm == fdProcesses:
				m.reg[dst] = valueBase
			case src == 2 && imm == fdLost:
				m.reg[dst] = lostBase
			case src != 0:
				m.t.Fatalf("the value of map %d", imm)
			}
			pc++
		case 1:
			var b [8]byte
			from := find(m.kernel, m.reg[src]+uint64(off), n) // of a struct whose type the verifier knows
			if from == nil {
				from = m.memory(m.reg[src]+uint64(off), n)
			}
			copy(b[:], from)
			m.reg[dst] = binary.LittleEndian.Uint64(b[:])
		case 2, 3:
			var v uint64
			if op&7 == 3 {
				v = m.reg[src]
			} else {
				v = uint64(int64(imm))
			}
			b := m.memory(m.reg[dst]+uint64(off), n)
			if op&0xe0 == 0xc0 {
				v += binary.LittleEndian.Uint64(b)
			}
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], v)
			copy(b, w[:])
		case 7:
			r := &m.reg[dst]
			switch bpf.Op(op & 0xf0) {
			case bpf.Mov:
				*r = operand
			case bpf.Add:
				*r += operand
			case bpf.Or:
				*r |= operand
			case bpf.And:
				*r &= operand
			case bpf.Lsh:
				*r <<= operand
			case bpf.Rsh:
				*r >>= operand
			}
		case 5, 6:
			switch op & 0xf0 {
			case 0x80:
				m.call(bpf.Func(imm))
				continue
			case 0x90:
				if m.reg[0] != 0 {
					m.t.Errorf("the program's result is %d", m.reg[0])
				}
				return
			case 0:
				pc += off
				continue
			}
			x := m.reg[dst]
			if op&7 == 6 {
				x, operand = uint64(uint32(x)), uint64(uint32(operand))
			}
			is := map[bpf.Cond]bool{
				bpf.Eq: x == operand, bpf.Ne: x != operand, bpf.Gt: x > operand, bpf.Le: x <= operand, bpf.SLt: int64(x) < int64(operand),
			}[bpf.Cond(op&0xf0)]
			if is {
				pc += off
			}
		}
	}
}

func negative(e unix.Errno) uint64 { return uint64(-int64(e)) }

func (m *machine) call(f bpf.Func) {
	m.t.Helper()
	a := m.reg[1:6]
	r := uint64(0)
	switch f {
	case bpf.MapLookup:
		if m.memory(a[1], 4); a[0] != mapBase+fdBuffers {
			m.t.Fatalf("a lookup in %#x", a[0])
		}
		r = m.buffer.at
	case bpf.Now:
		r = 5e9
	case bpf.PIDTGID:
		r = uint64(m.pid)<<32 | uint64(m.tid)
	case bpf.Comm:
		copy(m.memory(a[0], a[1]), "server\x00junk")
	case bpf.ReadUser, bpf.ReadKernel:
		from := m.user
		if f == bpf.ReadKernel {
			from = m.kernel
		}
		to := m.memory(a[0], a[1])
		clear(to)
		if b := find(from, a[2], a[1]); b != nil {
			copy(to, b)
		} else if a[1] > 0 {
			r = negative(unix.EFAULT)
		}
	case bpf.AncestorCgroupID:
		r = m.cgroupID + a[0]
	case bpf.RingOutput:
		if b := m.memory(a[1], a[2]); m.noRoom {
			r = negative(unix.EAGAIN)
		} else {
			m.out = append(m.out, append([]byte(nil), b...))
		}
	case bpf.Task:
		r = taskBase
	case bpf.UserRegs:
		r = regsBase
	default:
		m.t.Fatalf("function %d", f)
	}
	for i := range a {
		a[i] = 0xdead_0000_0000_0000 // lost, as in the kernel
	}
	m.reg[0] = r
}

// syscall sets the registers of the process's system call.
func (m *machine) syscall(nr uint64, args ...uint64) {
	regs := m.kernel[0].b
	put := func(place int, v uint64, n int) {
		for _, part := range userRegs {
			if place < part.bytes {
				var b [8]byte
				binary.NativeEndian.PutUint64(b[:], v)
				copy(regs[part.at+place:], b[:n])
				return
			}
			place -= part.bytes
		}
	}
	for i, a := range args {
		put(userArgs[i], a, 8)
	}
	put(userCall, nr, 4)
}

// inTrampolines is whether programs run in trampolines, or in kprobes.
var inTrampolines bool

// both runs a test with both.
func both(t *testing.T, f func(t *testing.T)) {
	for _, inTrampolines = range []bool{false, true} {
		t.Run(map[bool]string{false: "kprobes", true: "trampolines"}[inTrampolines], f)
	}
}

// enter runs the program at a function's entry, with the function's parameters.
func (m *machine) enter(s *source, function string, params ...uint64) {
	m.t.Helper()
	x := pointOf(function)
	m.run(s.enters(x, x.traced()), x.context(params))
}

// leave runs the program at a function's return.
func (m *machine) leave(s *source, function string, returned int64, params ...uint64) {
	m.t.Helper()
	x := pointOf(function)
	ctx := x.context(params)
	at := result
	if x.traced() {
		at = 8 * x.params
	} else {
		clear(ctx) // the function's own parameters are gone
	}
	binary.NativeEndian.PutUint64(ctx[at:], uint64(returned))
	m.run(s.returned(x, x.traced()), ctx)
}

func (x *point) traced() bool { return inTrampolines && !x.waits }

// context returns the context of a function's program, with its parameters.
func (x *point) context(params []uint64) []byte {
	b := make([]byte, regsSize)
	for i, v := range params {
		at := 8 * i
		if !x.traced() {
			at = parameter(i)
		}
		binary.NativeEndian.PutUint64(b[at:], v)
	}
	return b
}

// took returns the only record since it was last called.
func (m *machine) took() *Record {
	m.t.Helper()
	if len(m.out) != 1 {
		m.t.Fatalf("%d records, want 1", len(m.out))
	}
	r, err := parse(m.out[0], time.Unix(1000, 0))
	if err != nil {
		m.t.Fatal(err)
	}
	m.out = nil
	return r
}

// none checks that there is no record.
func (m *machine) none(what string) {
	m.t.Helper()
	if len(m.out) > 0 {
		m.t.Errorf("%s is reported", what)
		m.out = nil
	}
}

func pointOf(function string) *point {
	for i := range points {
		if points[i].function == function {
			return &points[i]
		}
	}
	panic(function)
}
