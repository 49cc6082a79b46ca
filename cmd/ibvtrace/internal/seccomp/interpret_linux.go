//go:build amd64 || arm64

package seccomp

import (
	"golang.org/x/sys/unix"
)

// A Data is struct seccomp_data, <linux/seccomp.h>, without the instruction pointer.
type Data struct {
	Nr, Arch uint32
	Args     [6]uint64
}

// load returns the 32-bit word at an offset of struct seccomp_data.
func (d *Data) load(offset uint32) (v uint32, ok bool) {
	switch {
	case offset == OffsetNr:
		return d.Nr, true
	case offset == offsetArch:
		return d.Arch, true
	case offset >= OffsetArg(0) && offset < dataBytes && offset%4 == 0:
		i := offset - OffsetArg(0)
		return uint32(d.Args[i/8] >> (8 * (i % 8))), true
	}
	return 0, false
}

const (
	dataBytes    = 64 // of struct seccomp_data
	scratchWords = 16 // BPF_MEMWORDS
)

// Run returns a filter's action for a system call. ok is false if the filter reads the
// instruction pointer, or if the kernel would reject the filter.
func (p Program) Run(d *Data) (action uint32, ok bool) {
	var a, x uint32
	var scratch [scratchWords]uint32
	for pc := 0; pc < len(p); pc++ {
		i := p[pc]
		code, class, operand := i.Code, i.Code&7, i.K
		if (class == unix.BPF_ALU || class == unix.BPF_JMP) && code&unix.BPF_X != 0 {
			code, operand = code&^unix.BPF_X, x
		}
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if a, ok = d.load(i.K); !ok {
				return 0, false
			}
		case unix.BPF_LD | unix.BPF_W | unix.BPF_LEN:
			a = dataBytes
		case unix.BPF_LDX | unix.BPF_W | unix.BPF_LEN:
			x = dataBytes
		case unix.BPF_LD | unix.BPF_IMM:
			a = i.K
		case unix.BPF_LDX | unix.BPF_IMM:
			x = i.K
		case unix.BPF_LD | unix.BPF_MEM, unix.BPF_LDX | unix.BPF_MEM, unix.BPF_ST, unix.BPF_STX:
			if i.K >= scratchWords {
				return 0, false
			}
			switch class {
			case unix.BPF_LD:
				a = scratch[i.K]
			case unix.BPF_LDX:
				x = scratch[i.K]
			case unix.BPF_ST:
				scratch[i.K] = a
			case unix.BPF_STX:
				scratch[i.K] = x
			}
		case unix.BPF_MISC | unix.BPF_TAX:
			x = a
		case unix.BPF_MISC | unix.BPF_TXA:
			a = x
		case unix.BPF_ALU | unix.BPF_ADD:
			a += operand
		case unix.BPF_ALU | unix.BPF_SUB:
			a -= operand
		case unix.BPF_ALU | unix.BPF_MUL:
			a *= operand
		case unix.BPF_ALU | unix.BPF_DIV:
			if operand == 0 {
				return unix.SECCOMP_RET_KILL_THREAD, true // 0, as in the kernel
			}
			a /= operand
		case unix.BPF_ALU | unix.BPF_AND:
			a &= operand
		case unix.BPF_ALU | unix.BPF_OR:
			a |= operand
		case unix.BPF_ALU | unix.BPF_XOR:
			a ^= operand
		case unix.BPF_ALU | unix.BPF_LSH:
			a <<= operand & 31
		case unix.BPF_ALU | unix.BPF_RSH:
			a >>= operand & 31
		case unix.BPF_ALU | unix.BPF_NEG:
			a = -a
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_JMP | unix.BPF_JEQ:
			pc += jump(i, a == operand)
		case unix.BPF_JMP | unix.BPF_JGT:
			pc += jump(i, a > operand)
		case unix.BPF_JMP | unix.BPF_JGE:
			pc += jump(i, a >= operand)
		case unix.BPF_JMP | unix.BPF_JSET:
			pc += jump(i, a&operand != 0)
		case unix.BPF_RET | unix.BPF_K:
			return i.K, true
		case unix.BPF_RET | unix.BPF_A:
			return a, true
		default:
			return 0, false
		}
	}
	return 0, false
}

// jump returns the number of instructions that a conditional jump skips.
func jump(i unix.SockFilter, is bool) int {
	if is {
		return int(i.Jt)
	}
	return int(i.Jf)
}
