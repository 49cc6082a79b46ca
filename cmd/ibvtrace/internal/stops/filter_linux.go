//go:build amd64 || arm64

package stops

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
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
			return seccomp.Program{seccomp.Load(seccomp.OffsetArg(1)), seccomp.IfEqual(uapi.RDMA_VERBS_IOCTL), seccomp.Stop, seccomp.Pass}
		case seccomp.SysOpen:
			return opensReadWrite(1)
		case seccomp.SysOpenat:
			return opensReadWrite(2)
		case seccomp.SysOpenat2, seccomp.SysCloseRange, seccomp.SysOldMmap, seccomp.SysSeccomp, seccomp.SysClone3, seccomp.SysPidfdGetfd:
			return seccomp.Program{seccomp.Stop} // rare
		case seccomp.SysRecvmsg, seccomp.SysRecvmmsg:
			// Whether descriptors can be received is in memory, which filters can't read.
			return seccomp.Program{seccomp.Stop}
		case seccomp.SysSocketcall:
			return seccomp.Program{seccomp.Load(seccomp.OffsetArg(0)), seccomp.IfEqual(seccomp.SocketcallRecvmsg), seccomp.Stop, seccomp.IfEqual(seccomp.SocketcallRecvmmsg), seccomp.Stop, seccomp.Pass}
		case seccomp.SysClone:
			return seccomp.Program{seccomp.Load(seccomp.OffsetArg(0)), seccomp.And(unix.CLONE_UNTRACED), seccomp.IfEqual(unix.CLONE_UNTRACED), seccomp.Stop, seccomp.Pass}
		case seccomp.SysMmap, seccomp.SysMmap2:
			return seccomp.Program{
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

// opensReadWrite selects opens with O_RDWR, as libibverbs and librdmacm use.
func opensReadWrite(flags uint32) seccomp.Program {
	return seccomp.Program{seccomp.Load(seccomp.OffsetArg(flags)), seccomp.And(unix.O_ACCMODE), seccomp.IfEqual(unix.O_RDWR), seccomp.Stop, seccomp.Pass}
}

// A watching is the set of operations on a descriptor that stop. Duplicating and
// closing it always do.
type watching uint8

const (
	watchClose watching = 1 << iota
	watchRead
	watchWrite
)

// watches returns the operations on a file that stop. Writes to rxe's uverbs files do not,
// unless the program sends commands by write: they are doorbells. The kernel skips filters for
// system calls that they always allow.
func watches(f *tracee.File) watching {
	switch {
	case f.Kind == tracee.FileCM, f.Kind == tracee.FileUverbs && (f.Driver != uapi.RDMA_DRIVER_RXE || f.Legacy):
		return watchClose | watchWrite
	case f.Kind == tracee.FileUverbs:
		return watchClose
	}
	return watchClose | watchRead
}

// fdFilter returns a filter for the operations on a descriptor, and with andAbove on all
// higher ones too.
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
			// Other commands must not stop: F_GETFL and F_SETFL are frequent.
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

// filterFlags are the flags for seccomp(2). Without SPEC_ALLOW, kernels before 5.16 mitigate
// speculative store bypass in the filtered program, which slows down posting.
const filterFlags = unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW

// InstallBase installs the first filter on the calling thread. Its children inherit it.
func InstallBase() error {
	prog := baseFilter()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	install := func() unix.Errno {
		// The pointers stay valid during the call. The kernel copies the filter.
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

// addFilter makes the traced process add a filter to all its threads.
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
			err = unix.EBUSY // a thread has other filters, so TSYNC failed
		}
		return err
	})
}
