package bpf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Reg is a register of the BPF machine. A call takes its arguments in R1 to R5 and loses
// them; its result is in R0. R6 to R9 survive calls. FP, which can't be changed, is the end of
// a stack of StackBytes bytes.
type Reg uint8

const (
	R0 Reg = iota
	R1
	R2
	R3
	R4
	R5
	R6
	R7
	R8
	R9
	FP
)

// StackBytes is the size of a program's stack.
const StackBytes = 512

// A Size is the size of a load or a store.
type Size uint8

const (
	W  Size = 0x00 // 4 bytes
	H  Size = 0x08 // 2 bytes
	B  Size = 0x10 // 1 byte
	DW Size = 0x18 // 8 bytes
)

// An Op is an operation on a 64-bit register.
type Op uint8

const (
	Add Op = 0x00
	Or  Op = 0x40
	And Op = 0x50
	Lsh Op = 0x60
	Rsh Op = 0x70
	Mov Op = 0xb0
)

// A Cond is the condition of a jump. All but SLt compare unsigned numbers.
type Cond uint8

const (
	Eq  Cond = 0x10
	Gt  Cond = 0x20
	Ne  Cond = 0x50
	Le  Cond = 0xb0
	SLt Cond = 0xc0
)

// A Func is a function of the kernel that programs call.
type Func int32

// The numbers are those of enum bpf_func_id, <linux/bpf.h>.
const (
	MapLookup        Func = 1   // of R1, a map, and R2, the address of a key: the value's address or 0
	Now              Func = 5   // the monotonic clock, in nanoseconds
	PIDTGID          Func = 14  // the process's ID in the upper half, the thread's in the lower
	Comm             Func = 16  // writes the thread's name to R1, R2 bytes
	ReadUser         Func = 112 // copies R2 bytes to R1 from R3, an address of the process
	ReadKernel       Func = 113 // copies R2 bytes to R1 from R3, an address of the kernel
	AncestorCgroupID Func = 123 // the ID of the ancestor at level R1 of the thread's cgroup
	RingOutput       Func = 130 // copies to R1, a ring, R3 bytes at R2, with R4, flags
	Task             Func = 158 // the thread's task_struct
	UserRegs         Func = 175 // the pt_regs of R1, a task_struct, at its entry into the kernel
)

// Instruction classes, modes and flags, <linux/bpf_common.h> and <linux/bpf.h>.
const (
	classLD    = 0x00
	classLDX   = 0x01
	classST    = 0x02
	classSTX   = 0x03
	classJMP   = 0x05
	classJMP32 = 0x06
	classALU64 = 0x07

	modeIMM    = 0x00
	modeMEM    = 0x60
	modeATOMIC = 0xc0

	operandReg = 0x08

	jumpAlways = 0x00
	jumpCall   = 0x80
	jumpExit   = 0x90

	pseudoMapFD    = 1
	pseudoMapValue = 2

	insnBytes = 8
)

// An Asm assembles a program. Its methods append instructions. A mistake, such as a jump to a
// label that is nowhere, is an error of Program.
type Asm struct {
	code   []byte
	labels map[string]int // index of the instruction
	jumps  []jump
	names  int
	err    error
}

type jump struct {
	at    int // index of the instruction
	label string
}

func (a *Asm) emit(op uint8, dst, src Reg, off int16, imm int32) {
	a.code = append(a.code, op, uint8(src)<<4|uint8(dst))
	a.code = binary.LittleEndian.AppendUint16(a.code, uint16(off))
	a.code = binary.LittleEndian.AppendUint32(a.code, uint32(imm))
}

func (a *Asm) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("bpf: "+format, args...)
	}
}

func (a *Asm) offset(off int) int16 {
	if off < math.MinInt16 || off > math.MaxInt16 {
		a.fail("the offset %d has more than 16 bits", off)
	}
	return int16(off)
}

// Do sets dst to the result of an operation on dst and src.
func (a *Asm) Do(op Op, dst, src Reg) { a.emit(classALU64|operandReg|uint8(op), dst, src, 0, 0) }

// DoImm sets dst to the result of an operation on dst and a number.
func (a *Asm) DoImm(op Op, dst Reg, imm int32) { a.emit(classALU64|uint8(op), dst, 0, 0, imm) }

// Const sets dst to a number of 64 bits.
func (a *Asm) Const(dst Reg, v uint64) {
	a.emit(classLD|modeIMM|uint8(DW), dst, 0, 0, int32(v))
	a.emit(0, 0, 0, 0, int32(v>>32))
}

// Map sets dst to the map with a descriptor.
func (a *Asm) Map(dst Reg, fd int) {
	a.emit(classLD|modeIMM|uint8(DW), dst, pseudoMapFD, 0, int32(fd))
	a.emit(0, 0, 0, 0, 0)
}

// Value sets dst to the address of a [Memory] with a descriptor.
func (a *Asm) Value(dst Reg, fd int) {
	a.emit(classLD|modeIMM|uint8(DW), dst, pseudoMapValue, 0, int32(fd))
	a.emit(0, 0, 0, 0, 0)
}

// Load sets dst to what is at src+off, with zeros above it.
func (a *Asm) Load(size Size, dst, src Reg, off int) {
	a.emit(classLDX|modeMEM|uint8(size), dst, src, a.offset(off), 0)
}

// Store writes src to dst+off.
func (a *Asm) Store(size Size, dst Reg, off int, src Reg) {
	a.emit(classSTX|modeMEM|uint8(size), dst, src, a.offset(off), 0)
}

// StoreImm writes a number to dst+off.
func (a *Asm) StoreImm(size Size, dst Reg, off int, imm int32) {
	a.emit(classST|modeMEM|uint8(size), dst, 0, a.offset(off), imm)
}

// AtomicAdd adds src to the 8 bytes at dst+off.
func (a *Asm) AtomicAdd(dst Reg, off int, src Reg) {
	a.emit(classSTX|modeATOMIC|uint8(DW), dst, src, a.offset(off), 0)
}

// Call calls a function of the kernel.
func (a *Asm) Call(f Func) { a.emit(classJMP|jumpCall, 0, 0, 0, int32(f)) }

// Exit ends the program. Its result is R0.
func (a *Asm) Exit() { a.emit(classJMP|jumpExit, 0, 0, 0, 0) }

// If jumps to a label if the condition holds for dst and src.
func (a *Asm) If(c Cond, dst, src Reg, label string) {
	a.jump(classJMP|operandReg|uint8(c), dst, src, 0, label)
}

// IfImm jumps to a label if the condition holds for dst and a number, which is extended with
// its sign to 64 bits.
func (a *Asm) IfImm(c Cond, dst Reg, imm int32, label string) {
	a.jump(classJMP|uint8(c), dst, 0, imm, label)
}

// If32 jumps to a label if the condition holds for the lower half of dst and a number.
func (a *Asm) If32(c Cond, dst Reg, imm uint32, label string) {
	a.jump(classJMP32|uint8(c), dst, 0, int32(imm), label)
}

// Goto jumps to a label.
func (a *Asm) Goto(label string) { a.jump(classJMP|jumpAlways, 0, 0, 0, label) }

func (a *Asm) jump(op uint8, dst, src Reg, imm int32, label string) {
	a.jumps = append(a.jumps, jump{len(a.code) / insnBytes, label})
	a.emit(op, dst, src, 0, imm)
}

// Label names the place of the next instruction.
func (a *Asm) Label(name string) {
	if a.labels == nil {
		a.labels = make(map[string]int)
	}
	if _, ok := a.labels[name]; ok {
		a.fail("the label %s is in two places", name)
	}
	a.labels[name] = len(a.code) / insnBytes
}

// NewLabel returns a name that no label has yet.
func (a *Asm) NewLabel() string {
	a.names++
	return fmt.Sprintf(".%d", a.names)
}

// Program returns the program's instructions.
func (a *Asm) Program() ([]byte, error) {
	for _, j := range a.jumps {
		to, ok := a.labels[j.label]
		if !ok {
			a.fail("the label %s is nowhere", j.label)
		}
		binary.LittleEndian.PutUint16(a.code[j.at*insnBytes+2:], uint16(a.offset(to-j.at-1)))
	}
	return a.code, a.err
}
