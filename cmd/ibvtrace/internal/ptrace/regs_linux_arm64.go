package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Registers are a thread's, as the kernel's user_pt_regs has them.
type Registers struct {
	unix.PtraceRegs
	size uint64 // that the kernel gave: a 32-bit thread has fewer
}

// syscallLen is the length of the instruction that calls the kernel.
const syscallLen = 4

// syscallCode is that instruction, "svc #0".
var syscallCode = []byte{0x01, 0x00, 0x00, 0xd4}

const ntPRStatus = 1 // NT_PRSTATUS, <linux/elf.h>

// GetRegisters returns a stopped thread's registers.
func GetRegisters(tid int) (Registers, error) {
	var r Registers
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(&r.PtraceRegs)), Len: uint64(unsafe.Sizeof(r.PtraceRegs))}
	err := ptrace(unix.PTRACE_GETREGSET, tid, ntPRStatus, uintptr(unsafe.Pointer(&v)))
	r.size = v.Len
	return r, err
}

// Set gives a stopped thread the registers.
func (r *Registers) Set(tid int) error {
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(&r.PtraceRegs)), Len: r.size}
	return ptrace(unix.PTRACE_SETREGSET, tid, ntPRStatus, uintptr(unsafe.Pointer(&v)))
}

// Native reports whether the thread runs 64-bit code.
func (r *Registers) Native() bool { return r.size == uint64(unsafe.Sizeof(r.PtraceRegs)) }

// PC returns the instruction pointer, SP the stack pointer.
func (r *Registers) PC() uint64 { return r.Pc }

func (r *Registers) SP() uint64 { return r.Sp }

func (r *Registers) result() uint64 { return r.Regs[0] }

// General returns what the general registers hold.
func (r *Registers) General() []uint64 { return r.Regs[:29] }

// setCall prepares a system call by the instruction at pc.
func (r *Registers) setCall(pc, nr uint64, args [6]uint64) {
	r.Pc = pc
	r.Regs[8] = nr
	copy(r.Regs[:6], args[:])
}

// FirstIsResult: the register of a system call's first argument gets its result.
const FirstIsResult = true

// SetFirst sets the first argument of the system call that a thread is about to make.
func SetFirst(tid int, arch uint32, v uint64) {
	r, err := GetRegisters(tid)
	if err != nil {
		return
	}
	if r.Native() {
		r.Regs[0] = v
	} else {
		r.Regs[0] = r.Regs[0]&^(1<<32-1) | v // of 32 bits, as all of theirs
	}
	r.Set(tid)
}

// Restarts reports nothing: on arm64 the kernel has decided before the stop how it goes on.
func (r *Registers) Restarts() (nr uint64, ok bool) { return 0, false }

// Again does nothing: nothing restarts.
func (r *Registers) Again(uint64) {}

// restart prepares what the kernel does itself with a system call that a stop
// interrupted: to make it again. The kernel of arm64 has done so before the stop.
func (r *Registers) restart() {}
