package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Registers are a thread's registers, the kernel's user_pt_regs.
type Registers struct {
	unix.PtraceRegs
	size uint64 // as the kernel returned it; smaller for a 32-bit thread
}

// syscallLen is the length of the system call instruction.
const syscallLen = 4

// syscallCode is the system call instruction, "svc #0".
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

// Set sets a stopped thread's registers.
func (r *Registers) Set(tid int) error {
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(&r.PtraceRegs)), Len: r.size}
	return ptrace(unix.PTRACE_SETREGSET, tid, ntPRStatus, uintptr(unsafe.Pointer(&v)))
}

// Native reports whether the thread runs 64-bit code.
func (r *Registers) Native() bool { return r.size == uint64(unsafe.Sizeof(r.PtraceRegs)) }

// PC returns the program counter.
func (r *Registers) PC() uint64 { return r.Pc }

// SP returns the stack pointer.
func (r *Registers) SP() uint64 { return r.Sp }

func (r *Registers) result() uint64 { return r.Regs[0] }

// General returns the values of the general-purpose registers.
func (r *Registers) General() []uint64 { return r.Regs[:29] }

// setCall prepares a system call with the instruction at pc.
func (r *Registers) setCall(pc, nr uint64, args [6]uint64) {
	r.Pc = pc
	r.Regs[8] = nr
	copy(r.Regs[:6], args[:])
}

// Skip makes a thread that is at the entry of a system call not make it.
func Skip(tid int) error {
	const systemCall = 0x404 // NT_ARM_SYSTEM_CALL, <linux/elf.h>
	none := int32(-1)
	iov := unix.Iovec{Base: (*byte)(unsafe.Pointer(&none)), Len: uint64(unsafe.Sizeof(none))}
	return ptrace(unix.PTRACE_SETREGSET, tid, systemCall, uintptr(unsafe.Pointer(&iov)))
}

// SetResult sets the result of the system call at whose exit a thread is.
func SetResult(tid int, v int64) error {
	r, err := GetRegisters(tid)
	if err != nil {
		return err
	}
	r.Regs[0] = uint64(v)
	return r.Set(tid)
}

// FirstIsResult says whether a system call's result is in the register of its first argument.
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
		r.Regs[0] = r.Regs[0]&^(1<<32-1) | v // a 32-bit argument
	}
	r.Set(tid)
}

// Restarts returns false: the kernel of arm64 prepares the restart before the stop.
func (r *Registers) Restarts() (nr uint64, ok bool) { return 0, false }

// Again does nothing, since Restarts returns false.
func (r *Registers) Again(uint64) {}

// restart does nothing: the kernel of arm64 prepares the restart before the stop.
func (r *Registers) restart() {}
