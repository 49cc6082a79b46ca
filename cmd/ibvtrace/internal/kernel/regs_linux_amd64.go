package kernel

// Offsets in struct pt_regs, <asm/ptrace.h>.

// parameter returns the offset of a function's parameter, up to the third.
func parameter(i int) int { return [...]int{112, 104, 96}[i] } // rdi, rsi, rdx

const result = 80 // rax

// userRegs are the parts of struct pt_regs that are copied to a record, one after the other:
// r10, r9, r8, rax, rcx, rdx, rsi, rdi and orig_rax.
var userRegs = []struct{ at, bytes int }{{56, 72}}

// userArgs are the places of the system call's arguments in what is copied.
var userArgs = [6]int{56, 48, 40, 0, 16, 8}

// userCall is the place of the system call's number.
const userCall = 64
