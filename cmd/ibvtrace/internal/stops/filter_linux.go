//go:build amd64 || arm64

package stops

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// baseFilter is the filter that programs are started with.
func baseFilter() seccomp.Program {
	return seccomp.Build(func(c seccomp.Syscall) seccomp.Program {
		switch c {
		case seccomp.SysIoctl:
			return seccomp.Program{
				seccomp.Load(seccomp.OffsetArg(1)), seccomp.SkipUnless(uapi.RDMA_VERBS_IOCTL, 4),
				seccomp.Load(seccomp.OffsetArgHigh(5)), seccomp.IfEqual(recorder.Mark), seccomp.Pass,
				seccomp.Stop, seccomp.Pass,
			}
		case seccomp.SysOpen:
			return opensReadWrite(1)
		case seccomp.SysOpenat:
			return opensReadWrite(2)
		case seccomp.SysOpenat2, seccomp.SysCloseRange, seccomp.SysOldMmap, seccomp.SysSeccomp, seccomp.SysClone3:
			return seccomp.Program{seccomp.Stop} // rare
		case seccomp.SysClone:
			return seccomp.Program{seccomp.Load(seccomp.OffsetArg(0)), seccomp.And(unix.CLONE_UNTRACED), seccomp.IfEqual(unix.CLONE_UNTRACED), seccomp.Stop, seccomp.Pass}
		case seccomp.SysMmap, seccomp.SysMmap2:
			return seccomp.Program{
				seccomp.Load(seccomp.OffsetArgHigh(4)), seccomp.IfEqual(recorder.Mark), seccomp.Pass,
				seccomp.Load(seccomp.OffsetArg(3)), seccomp.And(unix.MAP_TYPE | unix.MAP_ANONYMOUS),
				seccomp.IfEqual(unix.MAP_SHARED), seccomp.Stop,
				seccomp.IfEqual(unix.MAP_SHARED_VALIDATE), seccomp.Stop,
				seccomp.Pass,
			}
		case seccomp.SysPrctl:
			return seccomp.Program{seccomp.Load(seccomp.OffsetArg(0)), seccomp.IfEqual(unix.PR_SET_NAME), seccomp.Stop, seccomp.IfEqual(unix.PR_SET_SECCOMP), seccomp.Stop, seccomp.Pass}
		case seccomp.SysGetpid:
			return seccomp.Program{seccomp.Load(seccomp.OffsetArgHigh(5)), seccomp.IfEqual(tracing.Magic), seccomp.Stop, seccomp.Pass}
		}
		return nil
	})
}

// opensReadWrite: so do libibverbs and librdmacm.
func opensReadWrite(flags uint32) seccomp.Program {
	return seccomp.Program{seccomp.Load(seccomp.OffsetArg(flags)), seccomp.And(unix.O_ACCMODE), seccomp.IfEqual(unix.O_RDWR), seccomp.Stop, seccomp.Pass}
}

// A watching is what is watched of a descriptor, besides its ways to become another or
// to be closed.
type watching uint8

const (
	watchClose watching = 1 << iota
	watchRead
	watchWrite
)

// watches returns what matters of a file. On rxe's uverbs files writes do not, unless
// the program gives commands by them: else each would be a doorbell, and the kernel
// runs no filter at all for calls that none of them looks at.
func watches(f *tracee.File) watching {
	switch {
	case f.Kind == tracee.FileCM, f.Kind == tracee.FileUverbs && (f.Driver != uapi.RDMA_DRIVER_RXE || f.Legacy):
		return watchClose | watchWrite
	case f.Kind == tracee.FileUverbs:
		return watchClose
	}
	return watchClose | watchRead
}

// fdFilter is the filter for what is done to a descriptor, and with andAbove to all
// that have higher numbers.
func fdFilter(fd uint32, andAbove bool, what watching) seccomp.Program {
	isFD := func(arg uint32) seccomp.Program {
		if andAbove {
			return seccomp.Program{seccomp.Load(seccomp.OffsetArg(arg)), seccomp.IfAtLeast(fd), seccomp.Stop}
		}
		return seccomp.Program{seccomp.Load(seccomp.OffsetArg(arg)), seccomp.IfEqual(fd), seccomp.Stop}
	}
	return seccomp.Build(func(c seccomp.Syscall) seccomp.Program {
		switch c {
		case seccomp.SysRead, seccomp.SysReadv:
			if what&watchRead != 0 {
				return append(isFD(0), seccomp.Pass)
			}
		case seccomp.SysWrite, seccomp.SysWritev:
			if what&watchWrite != 0 {
				return append(isFD(0), seccomp.Pass)
			}
		case seccomp.SysClose, seccomp.SysDup:
			return append(isFD(0), seccomp.Pass)
		case seccomp.SysDup2, seccomp.SysDup3:
			return append(append(isFD(0), isFD(1)...), seccomp.Pass)
		case seccomp.SysFcntl:
			// Other commands do not matter: F_GETFL and F_SETFL come often.
			test := append(isFD(0), seccomp.Pass)
			return append(seccomp.Program{
				seccomp.Load(seccomp.OffsetArg(1)),
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 2, K: unix.F_DUPFD},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.F_DUPFD_CLOEXEC},
				seccomp.Pass,
			}, test...)
		}
		return nil
	})
}

// The flags for seccomp(2). Without SPEC_ALLOW, kernels before 5.16 slow the
// filtered program's loads down (speculative store bypass), which posting would
// feel.
const filterFlags = unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW

// InstallBase puts the first filter on the calling thread, and with that on all
// that it starts.
func InstallBase() error {
	prog := baseFilter()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	install := func() unix.Errno {
		// The pointers are Go's and live through the call; the kernel copies.
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, filterFlags, uintptr(unsafe.Pointer(&fprog)))
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

// addFilter has the traced process add a filter to all its threads.
func addFilter(in *ptrace.Injector, p seccomp.Program) error {
	const header = 16 // sizeof(struct sock_fprog)
	b := make([]byte, header, header+8*len(p))
	for _, i := range p {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	binary.NativeEndian.PutUint16(b, uint16(len(p)))
	return in.Lend(b, func(addr uint64) error {
		var pointer [8]byte
		binary.NativeEndian.PutUint64(pointer[:], addr+header)
		if err := ptrace.WriteMemory(in.TID, addr+8, pointer[:]); err != nil {
			return err
		}
		r, err := in.Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
			filterFlags|unix.SECCOMP_FILTER_FLAG_TSYNC, addr)
		if err == nil && r != 0 {
			err = unix.EBUSY // a thread has filters of its own
		}
		return err
	})
}
