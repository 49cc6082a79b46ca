package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Registers are a thread's registers, the kernel's user_regs_struct.
type Registers struct{ unix.PtraceRegs }

// syscallLen is the length of the system call instruction.
const syscallLen = 2

// syscallCode is the system call instruction, "syscall".
var syscallCode = []byte{0x0f, 0x05}

// GetRegisters returns a stopped thread's registers.
func GetRegisters(tid int) (Registers, error) {
	var r Registers
	err := ptrace(unix.PTRACE_GETREGS, tid, 0, uintptr(unsafe.Pointer(&r)))
	return r, err
}

// Set sets a stopped thread's registers.
func (r *Registers) Set(tid int) error {
	return ptrace(unix.PTRACE_SETREGS, tid, 0, uintptr(unsafe.Pointer(r)))
}

// Native reports whether the thread runs 64-bit code.
func (r *Registers) Native() bool { return r.Cs == 0x33 }

// PC returns the program counter.
func (r *Registers) PC() uint64 { return r.Rip }

// SP returns the stack pointer.
func (r *Registers) SP() uint64 { return r.Rsp }

func (r *Registers) result() uint64 { return r.Rax }

// General returns the values of the general-purpose registers.
func (r *Registers) General() []uint64 {
	return []uint64{r.Rdi, r.Rsi, r.Rdx, r.Rcx, r.R8, r.R9, r.Rbx, r.Rbp, r.R12, r.R13, r.R14, r.R15, r.R10}
}

// setCall prepares a system call with the instruction at pc.
func (r *Registers) setCall(pc, nr uint64, args [6]uint64) {
	r.Rip, r.Rax = pc, nr
	r.Orig_rax = ^uint64(0) // otherwise the kernel might restart another system call
	r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9 = args[0], args[1], args[2], args[3], args[4], args[5]
}

// Skip makes a thread that is at the entry of a system call not make it.
func Skip(tid int) error {
	r, err := GetRegisters(tid)
	if err != nil {
		return err
	}
	r.Orig_rax = ^uint64(0)
	return r.Set(tid)
}

// SetResult sets the result of the system call at whose exit a thread is.
func SetResult(tid int, v int64) error {
	r, err := GetRegisters(tid)
	if err != nil {
		return err
	}
	r.Rax = uint64(v)
	return r.Set(tid)
}

// FirstIsResult says whether a system call's result is in the register of its first argument.
const FirstIsResult = false

// SetFirst sets the first argument of the system call that a thread is at.
func SetFirst(tid int, arch uint32, v uint64) {
	r, err := GetRegisters(tid)
	if err != nil {
		return
	}
	if arch == unix.AUDIT_ARCH_I386 {
		r.Rbx = v
	} else {
		r.Rdi = v
	}
	r.Set(tid)
}

// Restarts returns the system call that a stop interrupted, if the kernel would continue it
// with restart_syscall.
func (r *Registers) Restarts() (nr uint64, ok bool) {
	const restartBlock = -516 // ERESTART_RESTARTBLOCK
	return r.Orig_rax, r.Native() && int64(r.Orig_rax) >= 0 && int64(r.Rax) == restartBlock
}

// Again makes the kernel restart system call nr with the arguments of the interrupted one.
func (r *Registers) Again(nr uint64) {
	r.Orig_rax = nr
	r.Rax = ^uint64(513) + 1 // -ERESTARTNOINTR
}

// restart makes the thread restart a system call that a stop interrupted, as the kernel
// would.
func (r *Registers) restart() {
	if int64(r.Orig_rax) < 0 {
		return // not in a system call
	}
	switch int64(r.Rax) {
	case -512, -513, -514: // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
		r.Rip -= syscallLen
		r.Rax = r.Orig_rax
	case -516: // ERESTART_RESTARTBLOCK
		r.Rip -= syscallLen
		r.Rax = unix.SYS_RESTART_SYSCALL
	}
	r.Orig_rax = ^uint64(0)
}
