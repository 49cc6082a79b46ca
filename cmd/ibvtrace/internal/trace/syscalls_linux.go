//go:build amd64 || arm64

package trace

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// A sysno is a system call that ibvtrace may have to look at.
type sysno uint8

const (
	sysOther sysno = iota
	sysRead
	sysReadv
	sysWrite
	sysWritev
	sysIoctl
	sysOpen
	sysOpenat
	sysOpenat2
	sysClose
	sysCloseRange
	sysDup
	sysDup2
	sysDup3
	sysFcntl
	sysMmap  // the offset in bytes
	sysMmap2 // the offset in units of 4096 bytes
	sysOldMmap
	sysPrctl
	sysSeccomp
	sysClone
	sysClone3
	sysGetpid // see trap
)

// An abi is one of the ways in which programs call the kernel on this machine.
type abi struct {
	arch  uint32 // AUDIT_ARCH_...
	wide  bool   // addresses and iovecs have 64 bits
	calls map[uint32]sysno
}

// x32 is what the x32 ABI, which is x86_64 otherwise, adds to its numbers.
const x32 = 0x40000000

var abis = map[string][]abi{
	"amd64": {
		{unix.AUDIT_ARCH_X86_64, true, map[uint32]sysno{
			0: sysRead, 1: sysWrite, 2: sysOpen, 3: sysClose, 9: sysMmap, 16: sysIoctl, 19: sysReadv, 20: sysWritev,
			32: sysDup, 33: sysDup2, 39: sysGetpid, 56: sysClone, 72: sysFcntl, 157: sysPrctl, 257: sysOpenat, 292: sysDup3, 317: sysSeccomp,
			435: sysClone3, 436: sysCloseRange, 437: sysOpenat2,
			x32 + 0: sysRead, x32 + 1: sysWrite, x32 + 2: sysOpen, x32 + 3: sysClose, x32 + 9: sysMmap,
			x32 + 32: sysDup, x32 + 33: sysDup2, x32 + 56: sysClone, x32 + 72: sysFcntl, x32 + 157: sysPrctl, x32 + 257: sysOpenat, x32 + 292: sysDup3, x32 + 317: sysSeccomp,
			x32 + 435: sysClone3, x32 + 436: sysCloseRange, x32 + 437: sysOpenat2, x32 + 514: sysIoctl,
		}},
		{unix.AUDIT_ARCH_I386, false, map[uint32]sysno{
			3: sysRead, 4: sysWrite, 5: sysOpen, 6: sysClose, 41: sysDup, 54: sysIoctl, 55: sysFcntl, 63: sysDup2,
			90: sysOldMmap, 120: sysClone, 145: sysReadv, 146: sysWritev, 172: sysPrctl, 192: sysMmap2, 221: sysFcntl, 295: sysOpenat, 330: sysDup3, 354: sysSeccomp,
			435: sysClone3, 436: sysCloseRange, 437: sysOpenat2,
		}},
	},
	"arm64": {
		{unix.AUDIT_ARCH_AARCH64, true, map[uint32]sysno{
			23: sysDup, 24: sysDup3, 25: sysFcntl, 29: sysIoctl, 56: sysOpenat, 57: sysClose, 63: sysRead, 64: sysWrite,
			65: sysReadv, 66: sysWritev, 167: sysPrctl, 172: sysGetpid, 220: sysClone, 222: sysMmap, 277: sysSeccomp,
			435: sysClone3, 436: sysCloseRange, 437: sysOpenat2,
		}},
		{unix.AUDIT_ARCH_ARM, false, map[uint32]sysno{
			3: sysRead, 4: sysWrite, 5: sysOpen, 6: sysClose, 41: sysDup, 54: sysIoctl, 55: sysFcntl, 63: sysDup2,
			120: sysClone, 145: sysReadv, 146: sysWritev, 172: sysPrctl, 192: sysMmap2, 221: sysFcntl, 322: sysOpenat, 358: sysDup3, 383: sysSeccomp,
			435: sysClone3, 436: sysCloseRange, 437: sysOpenat2,
		}},
	},
}[runtime.GOARCH]

// lookupSyscall returns which system call a number is, and whether its caller's
// addresses have 64 bits.
func lookupSyscall(arch uint32, nr uint64) (call sysno, wide bool) {
	if nr > 1<<32-1 {
		return sysOther, true
	}
	for i := range abis {
		if abis[i].arch == arch {
			return abis[i].calls[uint32(nr)], abis[i].wide
		}
	}
	return sysOther, true
}
