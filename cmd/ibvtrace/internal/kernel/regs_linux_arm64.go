package kernel

// Offsets in struct pt_regs, <asm/ptrace.h>.

// parameter returns the offset of a function's parameter, up to the third.
func parameter(i int) int { return 8 * i }

const result = 0

// userRegs are the parts of struct pt_regs that are copied to a record, one after the other:
// x1 to x5, orig_x0 and syscallno. x0 may be the result already.
var userRegs = []struct{ at, bytes int }{{8, 40}, {272, 12}}

// userArgs are the places of the system call's arguments in what is copied.
var userArgs = [6]int{40, 0, 8, 16, 24, 32}

// userCall is the place of the system call's number, of 32 bits.
const userCall = 48
