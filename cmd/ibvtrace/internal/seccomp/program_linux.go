//go:build amd64 || arm64

package seccomp

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, <linux/seccomp.h>. Both architectures are little-endian, so
// the lower half of an argument comes first.
const (
	OffsetNr   = 0
	offsetArch = 4
)

// OffsetArg returns the offset of the lower half of an argument.
func OffsetArg(i uint32) uint32 { return 16 + 8*i }

// OffsetArgHigh returns the offset of the upper half of an argument.
func OffsetArgHigh(i uint32) uint32 { return 16 + 8*i + 4 }

// A Program is a filter.
type Program []unix.SockFilter

// Load loads the word at an offset into the accumulator.
func Load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// And masks the accumulator.
func And(mask uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}
}

// IfEqual skips the next instruction unless the accumulator is k.
func IfEqual(k uint32) unix.SockFilter { return SkipUnless(k, 1) }

// SkipUnless skips the next n instructions unless the accumulator is k.
func SkipUnless(k uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: n, K: k}
}

// IfAtLeast skips the next instruction unless the accumulator is at least k.
func IfAtLeast(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: k}
}

var (
	Stop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE}
	Pass = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
)

// Build returns a filter that runs a check for each system call. A check ends with Stop or
// Pass. A nil check allows the call.
func Build(check func(Syscall) Program) Program {
	var out Program
	for i := range ABIs {
		body := Program{Load(OffsetNr)}
		// The order is fixed, so that tests run the same filter.
		for _, nr := range slices.Sorted(maps.Keys(ABIs[i].Calls)) {
			if c := check(ABIs[i].Calls[nr]); c != nil {
				body = append(append(body, SkipUnless(nr, uint8(len(c)))), c...)
			}
		}
		body = append(body, Pass)
		// Conditional jumps reach 255 instructions at most.
		out = append(out, Load(offsetArch),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: ABIs[i].Arch},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(body))})
		out = append(out, body...)
	}
	return append(out, Pass)
}
