//go:build amd64 || arm64

package seccomp

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, <linux/seccomp.h>. Both architectures are little
// endian: the lower half of an argument comes first.
const (
	OffsetNr   = 0
	offsetArch = 4
)

// OffsetArg returns where the lower half of an argument is.
func OffsetArg(i uint32) uint32 { return 16 + 8*i }

// OffsetArgHigh returns where its upper half is.
func OffsetArgHigh(i uint32) uint32 { return 16 + 8*i + 4 }

// A Program is a filter.
type Program []unix.SockFilter

// Load loads what is at an offset.
func Load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// And leaves of the accumulator what a mask has.
func And(mask uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}
}

// IfEqual runs the next instruction if the accumulator is k, else the one after it.
func IfEqual(k uint32) unix.SockFilter { return SkipUnless(k, 1) }

// SkipUnless jumps over n instructions if the accumulator is not k.
func SkipUnless(k uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: n, K: k}
}

// IfAtLeast runs the next instruction if the accumulator is k or more, else the one
// after it.
func IfAtLeast(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: k}
}

var (
	Stop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE}
	Pass = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
)

// Build makes a filter of what each system call is to be checked for. A check says
// stop or pass; one that is nil lets the call pass.
func Build(check func(Syscall) Program) Program {
	var out Program
	for i := range ABIs {
		body := Program{Load(OffsetNr)}
		// In a fixed order: what is tested is what runs.
		for _, nr := range slices.Sorted(maps.Keys(ABIs[i].Calls)) {
			if c := check(ABIs[i].Calls[nr]); c != nil {
				body = append(append(body, SkipUnless(nr, uint8(len(c)))), c...)
			}
		}
		body = append(body, Pass)
		// Over 255 instructions only an unconditional jump leads.
		out = append(out, Load(offsetArch),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: ABIs[i].Arch},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(body))})
		out = append(out, body...)
	}
	return append(out, Pass)
}
