//go:build amd64 || arm64

package trace

import (
	"encoding/binary"
	"maps"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// Seccomp filters choose the system calls that stop. The first, which every program
// is started with, has those that are about RDMA by their arguments alone: the
// verbs' ioctl, shared mappings of files, and what may open a device. Reading
// and writing stop on the descriptors that are RDMA's only: once such a descriptor
// appears, the program is made to add a filter for its number, see watch. rxe's
// doorbell is a write to such a descriptor; see watches.

// Offsets in struct seccomp_data, <linux/seccomp.h>. Both architectures are little
// endian: the lower half of an argument comes first.
const (
	seccompNr   = 0
	seccompArch = 4
)

func seccompArg(i uint32) uint32     { return 16 + 8*i }
func seccompArgHigh(i uint32) uint32 { return 16 + 8*i + 4 }

type program []unix.SockFilter

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func and(mask uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}
}

// ifEqual runs the next instruction if the accumulator is k, else the one after it.
func ifEqual(k uint32) unix.SockFilter { return skipUnless(k, 1) }

// skipUnless jumps over n instructions if the accumulator is not k.
func skipUnless(k uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: n, K: k}
}

// ifAtLeast runs the next instruction if the accumulator is k or more, else the one
// after it.
func ifAtLeast(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: k}
}

var (
	stop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE}
	pass = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
)

// build makes a filter of what each system call is to be checked for. A check says
// stop or pass; one that is nil lets the call pass.
func build(check func(sysno) program) program {
	var out program
	for i := range abis {
		body := program{load(seccompNr)}
		// In a fixed order: what is tested is what runs.
		for _, nr := range slices.Sorted(maps.Keys(abis[i].calls)) {
			if c := check(abis[i].calls[nr]); c != nil {
				body = append(append(body, skipUnless(nr, uint8(len(c)))), c...)
			}
		}
		body = append(body, pass)
		// Over 255 instructions only an unconditional jump leads.
		out = append(out, load(seccompArch),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: abis[i].arch},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(body))})
		out = append(out, body...)
	}
	return append(out, pass)
}

// baseFilter is the filter that programs are started with.
func baseFilter() program {
	return build(func(c sysno) program {
		switch c {
		case sysIoctl:
			return program{
				load(seccompArg(1)), skipUnless(uapi.RDMA_VERBS_IOCTL, 4),
				load(seccompArgHigh(5)), ifEqual(recorder.Mark), pass,
				stop, pass,
			}
		case sysOpen:
			return opensReadWrite(1)
		case sysOpenat:
			return opensReadWrite(2)
		case sysOpenat2, sysCloseRange, sysOldMmap, sysSeccomp, sysClone3:
			return program{stop} // rare
		case sysClone:
			return program{load(seccompArg(0)), and(unix.CLONE_UNTRACED), ifEqual(unix.CLONE_UNTRACED), stop, pass}
		case sysMmap, sysMmap2:
			return program{
				load(seccompArgHigh(4)), ifEqual(recorder.Mark), pass,
				load(seccompArg(3)), and(unix.MAP_TYPE | unix.MAP_ANONYMOUS),
				ifEqual(unix.MAP_SHARED), stop,
				ifEqual(unix.MAP_SHARED_VALIDATE), stop,
				pass,
			}
		case sysPrctl:
			return program{load(seccompArg(0)), ifEqual(unix.PR_SET_NAME), stop, ifEqual(unix.PR_SET_SECCOMP), stop, pass}
		case sysGetpid:
			return program{load(seccompArgHigh(5)), ifEqual(tracing.Magic), stop, pass}
		}
		return nil
	})
}

// opensReadWrite: so do libibverbs and librdmacm.
func opensReadWrite(flags uint32) program {
	return program{load(seccompArg(flags)), and(unix.O_ACCMODE), ifEqual(unix.O_RDWR), stop, pass}
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
func (f *file) watches() watching {
	switch {
	case f.kind == fileCM, f.kind == fileUverbs && (f.driver != uapi.RDMA_DRIVER_RXE || f.legacy):
		return watchClose | watchWrite
	case f.kind == fileUverbs:
		return watchClose
	}
	return watchClose | watchRead
}

// fdFilter is the filter for what is done to a descriptor, and with andAbove to all
// that have higher numbers.
func fdFilter(fd uint32, andAbove bool, what watching) program {
	isFD := func(arg uint32) program {
		if andAbove {
			return program{load(seccompArg(arg)), ifAtLeast(fd), stop}
		}
		return program{load(seccompArg(arg)), ifEqual(fd), stop}
	}
	return build(func(c sysno) program {
		switch c {
		case sysRead, sysReadv:
			if what&watchRead != 0 {
				return append(isFD(0), pass)
			}
		case sysWrite, sysWritev:
			if what&watchWrite != 0 {
				return append(isFD(0), pass)
			}
		case sysClose, sysDup:
			return append(isFD(0), pass)
		case sysDup2, sysDup3:
			return append(append(isFD(0), isFD(1)...), pass)
		case sysFcntl:
			// Other commands do not matter: F_GETFL and F_SETFL come often.
			test := append(isFD(0), pass)
			return append(program{
				load(seccompArg(1)),
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 2, K: unix.F_DUPFD},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.F_DUPFD_CLOEXEC},
				pass,
			}, test...)
		}
		return nil
	})
}

// The flags for seccomp(2). Without SPEC_ALLOW, kernels before 5.16 slow the
// filtered program's loads down (speculative store bypass), which posting would
// feel.
const filterFlags = unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW

// installBase puts the first filter on the calling thread, and with that on all
// that it starts.
func installBase() error {
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
func (in *injector) addFilter(p program) error {
	const header = 16 // sizeof(struct sock_fprog)
	b := make([]byte, header, header+8*len(p))
	for _, i := range p {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	binary.NativeEndian.PutUint16(b, uint16(len(p)))
	return in.lend(b, func(addr uint64) error {
		var pointer [8]byte
		binary.NativeEndian.PutUint64(pointer[:], addr+header)
		if err := writeMemory(in.tid, addr+8, pointer[:]); err != nil {
			return err
		}
		r, err := in.call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
			filterFlags|unix.SECCOMP_FILTER_FLAG_TSYNC, addr)
		if err == nil && r != 0 {
			err = unix.EBUSY // a thread has filters of its own
		}
		return err
	})
}
