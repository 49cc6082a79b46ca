//go:build amd64 || arm64

package main

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// Offsets in struct seccomp_data, <linux/seccomp.h>. The command is the lower
// half of args[1]; both architectures are little endian.
const (
	seccompNr   = 0
	seccompArch = 4
	seccompCmd  = 16 + 8
)

// ioctlCalls are the numbers that ioctl(2) has in each ABI this machine runs.
var ioctlCalls = map[string][]struct{ arch, nr uint32 }{
	"amd64": {
		{unix.AUDIT_ARCH_X86_64, 16},
		{unix.AUDIT_ARCH_X86_64, 0x40000000 + 514}, // x32
		{unix.AUDIT_ARCH_I386, 54},
	},
	"arm64": {
		{unix.AUDIT_ARCH_AARCH64, 29},
		{unix.AUDIT_ARCH_ARM, 54},
	},
}[runtime.GOARCH]

// isVerb reports whether a system call is the verbs' ioctl.
func isVerb(arch uint32, nr, cmd uint64) bool {
	if uint32(cmd) != uapi.RDMA_VERBS_IOCTL {
		return false
	}
	for _, c := range ioctlCalls {
		if c.arch == arch && uint64(c.nr) == nr {
			return true
		}
	}
	return false
}

// filter returns the BPF program that hands the verbs' ioctl to the tracer and
// lets all else through.
func filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// skipUnless jumps over n instructions if the accumulator is not k.
	skipUnless := func(k uint32, n uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: n, K: k}
	}
	ret := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	// The number first: it ends the way of nearly every system call.
	var prog []unix.SockFilter
	for _, c := range ioctlCalls {
		prog = append(prog,
			load(seccompNr),
			skipUnless(c.nr, 5),
			load(seccompArch),
			skipUnless(c.arch, 3),
			load(seccompCmd),
			skipUnless(uapi.RDMA_VERBS_IOCTL, 1),
			ret(unix.SECCOMP_RET_TRACE),
		)
	}
	return append(prog, ret(unix.SECCOMP_RET_ALLOW))
}

// installFilter puts the filter on the calling thread, and with that on all
// that it starts.
func installFilter() error {
	prog := filter()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// Without SPEC_ALLOW, kernels before 5.16 slow the filtered program's
	// loads down (speculative store bypass), which posting would feel.
	install := func() unix.Errno {
		// The pointers are Go's and live through the call; the kernel copies.
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
			unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&fprog)))
		return errno
	}
	errno := install()
	if errno == unix.EACCES { // no CAP_SYS_ADMIN
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
		errno = install()
	}
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
