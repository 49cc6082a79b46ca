//go:build amd64 || arm64

package tracer

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// enter handles a system call that a thread is about to make. It returns nil if the call's
// exit does not matter.
func (t *tracer) enter(th *tracee.Thread, info *ptrace.SyscallInfo) *tracee.Call {
	nr, wide := seccomp.LookupSyscall(info.Arch, info.Nr)
	if !wide {
		for i := range info.Args {
			info.Args[i] &= 1<<32 - 1
		}
	}
	if t.Broken() && nr != seccomp.SysClone && nr != seccomp.SysClone3 {
		return nil
	}
	fd := int(int32(info.Args[0]))
	var c *tracee.Call
	switch nr {
	case seccomp.SysIoctl:
		if uint32(info.Args[1]) == uapi.RDMA_VERBS_IOCTL {
			c = t.calls.EnterIoctl(th, fd, info.Args[2])
		}
	case seccomp.SysOpen:
		c = t.calls.EnterOpen(th, info.Args[0], info.Args[1])
	case seccomp.SysOpenat:
		c = t.calls.EnterOpen(th, info.Args[1], info.Args[2])
	case seccomp.SysOpenat2:
		var how [8]byte // struct open_how begins with the flags
		if ptrace.ReadMemory(th.TID, info.Args[2], how[:]) == nil {
			c = t.calls.EnterOpen(th, info.Args[1], binary.NativeEndian.Uint64(how[:]))
		}
	case seccomp.SysClose:
		c = t.calls.EnterClose(th, fd)
	case seccomp.SysCloseRange:
		c = t.calls.EnterCloseRange(th, info.Args[0], info.Args[1], info.Args[2])
	case seccomp.SysDup:
		c = t.calls.EnterDup(th, fd, -1)
	case seccomp.SysDup2, seccomp.SysDup3:
		c = t.calls.EnterDup(th, fd, int(int32(info.Args[1])))
	case seccomp.SysFcntl:
		if cmd := uint32(info.Args[1]); cmd == unix.F_DUPFD || cmd == unix.F_DUPFD_CLOEXEC {
			c = t.calls.EnterDup(th, fd, -1)
		}
	case seccomp.SysMmap:
		c = t.calls.EnterMmap(th, info.Args)
	case seccomp.SysMmap2:
		info.Args[5] *= 4096
		c = t.calls.EnterMmap(th, info.Args)
	case seccomp.SysOldMmap:
		var b [24]byte // struct mmap_arg_struct: the arguments
		if ptrace.ReadMemory(th.TID, info.Args[0], b[:]) == nil {
			for i := range info.Args {
				info.Args[i] = uint64(binary.NativeEndian.Uint32(b[4*i:]))
			}
			c = t.calls.EnterMmap(th, info.Args)
		}
	case seccomp.SysRead:
		c = t.calls.EnterRead(th, fd, info.Args[1], info.Args[2])
	case seccomp.SysReadv:
		if addr, n, ok := firstBuffer(th.TID, info.Args[1], info.Args[2], wide); ok {
			c = t.calls.EnterRead(th, fd, addr, n)
		}
	case seccomp.SysWrite:
		c = t.calls.EnterWrite(th, fd, info.Args[1], info.Args[2])
	case seccomp.SysWritev:
		if addr, n, ok := firstBuffer(th.TID, info.Args[1], info.Args[2], wide); ok {
			c = t.calls.EnterWrite(th, fd, addr, n)
		}
	case seccomp.SysPrctl:
		if info.Args[0] == unix.PR_SET_NAME {
			th.Comm = "" // read again when needed
		}
		if info.Args[0] == unix.PR_SET_SECCOMP {
			c = t.stops.EnterSeccomp(th, info.Args[1] == unix.SECCOMP_MODE_STRICT, false, info.Args[2], wide)
		}
	case seccomp.SysSeccomp:
		switch uint32(info.Args[0]) {
		case unix.SECCOMP_SET_MODE_STRICT:
			if uint32(info.Args[1]) == 0 { // the kernel rejects flags
				c = t.stops.EnterSeccomp(th, true, false, 0, wide)
			}
		case unix.SECCOMP_SET_MODE_FILTER:
			all := info.Args[1]&unix.SECCOMP_FILTER_FLAG_TSYNC != 0
			c = t.stops.EnterSeccomp(th, false, all, info.Args[2], wide)
		}
	case seccomp.SysRecvmsg:
		c = t.calls.EnterReceive(th, "recvmsg", fd, info.Args[1], 1, wide)
	case seccomp.SysRecvmmsg:
		c = t.calls.EnterReceive(th, "recvmmsg", fd, info.Args[1], info.Args[2], wide)
	case seccomp.SysSocketcall:
		var b [12]byte // the first of the arguments
		if ptrace.ReadMemory(th.TID, info.Args[1], b[:]) != nil {
			break
		}
		fd, addr, n := int(int32(binary.NativeEndian.Uint32(b[:]))), uint64(binary.NativeEndian.Uint32(b[4:])), uint64(binary.NativeEndian.Uint32(b[8:]))
		switch info.Args[0] {
		case seccomp.SocketcallRecvmsg:
			c = t.calls.EnterReceive(th, "recvmsg", fd, addr, 1, wide)
		case seccomp.SocketcallRecvmmsg:
			c = t.calls.EnterReceive(th, "recvmmsg", fd, addr, n, wide)
		}
	case seccomp.SysPidfdGetfd:
		c = t.calls.EnterGetfd(th, fd, int(int32(info.Args[1])))
	case seccomp.SysClone:
		c = t.stops.EnterClone(th, info)
	case seccomp.SysClone3:
		c = t.stops.EnterClone3(th, info.Args[0])
	case seccomp.SysGetpid:
		if info.Args[5]>>32 == tracing.Magic {
			t.trap(th, info)
		}
	}
	return c
}

// firstBuffer returns the first buffer of a readv or writev. On RDMA files each buffer is a
// read or write of its own. Programs use only one.
func firstBuffer(tid int, iov, count uint64, wide bool) (addr, n uint64, ok bool) {
	if count == 0 {
		return 0, 0, false
	}
	var b [16]byte
	if !wide {
		if ptrace.ReadMemory(tid, iov, b[:8]) != nil {
			return 0, 0, false
		}
		return uint64(binary.NativeEndian.Uint32(b[:])), uint64(binary.NativeEndian.Uint32(b[4:])), true
	}
	if ptrace.ReadMemory(tid, iov, b[:]) != nil {
		return 0, 0, false
	}
	return binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:]), true
}
