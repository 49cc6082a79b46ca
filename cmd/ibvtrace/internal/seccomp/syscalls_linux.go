//go:build amd64 || arm64

package seccomp

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// A Syscall is a system call that ibvtrace may trace.
type Syscall uint8

const (
	sysOther Syscall = iota
	SysRead
	SysReadv
	SysWrite
	SysWritev
	SysIoctl
	SysOpen
	SysOpenat
	SysOpenat2
	SysClose
	SysCloseRange
	SysDup
	SysDup2
	SysDup3
	SysFcntl
	SysMmap  // the offset in bytes
	SysMmap2 // the offset in units of 4096 bytes
	SysOldMmap
	SysPrctl
	SysSeccomp
	SysClone
	SysClone3
	SysRecvmsg
	SysRecvmmsg
	SysSocketcall // of i386, see SocketcallRecvmsg
	SysPidfdGetfd
	SysGetpid // a report of a probe or of a Go program
)

// The first argument of socketcall, <linux/net.h>.
const (
	SocketcallRecvmsg  = 17
	SocketcallRecvmmsg = 19
)

// An abi is a system call ABI of this machine.
type abi struct {
	Arch  uint32 // AUDIT_ARCH_...
	wide  bool   // addresses and iovecs have 64 bits
	Calls map[uint32]Syscall
}

// x32 is the bit that the x32 ABI sets in its system call numbers. Otherwise x32 is x86_64.
const x32 = 0x40000000

// ABIs are the ABIs of this machine, the native one first.
var ABIs = map[string][]abi{
	"amd64": {
		{unix.AUDIT_ARCH_X86_64, true, map[uint32]Syscall{
			0: SysRead, 1: SysWrite, 2: SysOpen, 3: SysClose, 9: SysMmap, 16: SysIoctl, 19: SysReadv, 20: SysWritev,
			32: SysDup, 33: SysDup2, 39: SysGetpid, 56: SysClone, 72: SysFcntl, 157: SysPrctl, 257: SysOpenat, 292: SysDup3, 317: SysSeccomp,
			47: SysRecvmsg, 299: SysRecvmmsg, 327: SysReadv, 328: SysWritev, // preadv2, pwritev2
			435: SysClone3, 436: SysCloseRange, 437: SysOpenat2, 438: SysPidfdGetfd,
			x32 + 0: SysRead, x32 + 1: SysWrite, x32 + 2: SysOpen, x32 + 3: SysClose, x32 + 9: SysMmap,
			x32 + 32: SysDup, x32 + 33: SysDup2, x32 + 56: SysClone, x32 + 72: SysFcntl, x32 + 157: SysPrctl, x32 + 257: SysOpenat, x32 + 292: SysDup3, x32 + 317: SysSeccomp,
			x32 + 435: SysClone3, x32 + 436: SysCloseRange, x32 + 437: SysOpenat2, x32 + 438: SysPidfdGetfd, x32 + 514: SysIoctl,
		}},
		{unix.AUDIT_ARCH_I386, false, map[uint32]Syscall{
			3: SysRead, 4: SysWrite, 5: SysOpen, 6: SysClose, 41: SysDup, 54: SysIoctl, 55: SysFcntl, 63: SysDup2,
			90: SysOldMmap, 120: SysClone, 145: SysReadv, 146: SysWritev, 172: SysPrctl, 192: SysMmap2, 221: SysFcntl, 295: SysOpenat, 330: SysDup3, 354: SysSeccomp,
			102: SysSocketcall, 337: SysRecvmmsg, 372: SysRecvmsg, 378: SysReadv, 379: SysWritev, 417: SysRecvmmsg,
			435: SysClone3, 436: SysCloseRange, 437: SysOpenat2, 438: SysPidfdGetfd,
		}},
	},
	"arm64": {
		{unix.AUDIT_ARCH_AARCH64, true, map[uint32]Syscall{
			23: SysDup, 24: SysDup3, 25: SysFcntl, 29: SysIoctl, 56: SysOpenat, 57: SysClose, 63: SysRead, 64: SysWrite,
			65: SysReadv, 66: SysWritev, 167: SysPrctl, 172: SysGetpid, 220: SysClone, 222: SysMmap, 277: SysSeccomp,
			212: SysRecvmsg, 243: SysRecvmmsg, 286: SysReadv, 287: SysWritev, // preadv2, pwritev2
			435: SysClone3, 436: SysCloseRange, 437: SysOpenat2, 438: SysPidfdGetfd,
		}},
		{unix.AUDIT_ARCH_ARM, false, map[uint32]Syscall{
			3: SysRead, 4: SysWrite, 5: SysOpen, 6: SysClose, 41: SysDup, 54: SysIoctl, 55: SysFcntl, 63: SysDup2,
			120: SysClone, 145: SysReadv, 146: SysWritev, 172: SysPrctl, 192: SysMmap2, 221: SysFcntl, 322: SysOpenat, 358: SysDup3, 383: SysSeccomp,
			297: SysRecvmsg, 365: SysRecvmmsg, 392: SysReadv, 393: SysWritev, 417: SysRecvmmsg,
			435: SysClone3, 436: SysCloseRange, 437: SysOpenat2, 438: SysPidfdGetfd,
		}},
	},
}[runtime.GOARCH]

// LookupSyscall returns the system call with a number on an ABI, and whether the ABI's
// addresses have 64 bits.
func LookupSyscall(arch uint32, nr uint64) (call Syscall, wide bool) {
	if nr > 1<<32-1 {
		return sysOther, true
	}
	for i := range ABIs {
		if ABIs[i].Arch == arch {
			return ABIs[i].Calls[uint32(nr)], ABIs[i].wide
		}
	}
	return sysOther, true
}
