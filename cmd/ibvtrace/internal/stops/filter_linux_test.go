//go:build amd64 || arm64

package stops

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// stopsAt reports whether a filter stops a system call.
func stopsAt(t *testing.T, p seccomp.Program, arch, nr uint32, args [6]uint64) bool {
	t.Helper()
	action, ok := p.Run(&seccomp.Data{Nr: nr, Arch: arch, Args: args})
	if !ok {
		t.Fatal("the filter is invalid")
	}
	return action == unix.SECCOMP_RET_TRACE
}

func TestFilters(t *testing.T) {
	base := baseFilter()
	uverbs := fdFilter(5, false, watches(&tracee.File{Kind: tracee.FileUverbs, Driver: uapi.RDMA_DRIVER_RXE}))
	legacy := fdFilter(5, false, watches(&tracee.File{Kind: tracee.FileUverbs, Driver: uapi.RDMA_DRIVER_RXE, Legacy: true}))
	mlx5 := fdFilter(5, false, watches(&tracee.File{Kind: tracee.FileUverbs, Driver: uapi.RDMA_DRIVER_MLX5}))
	cm := fdFilter(5, false, watches(&tracee.File{Kind: tracee.FileCM}))
	channel := fdFilter(5, false, watches(&tracee.File{Kind: tracee.FileChannel}))
	above := fdFilter(5, true, watchClose|watchRead|watchWrite)
	for name, p := range map[string]seccomp.Program{"base": base, "fd": mlx5, "above": above} {
		if len(p) > 4096 {
			t.Errorf("%s: %d instructions, the kernel's limit is 4096", name, len(p))
		}
	}
	for _, abi := range seccomp.ABIs {
		for nr, c := range abi.Calls {
			run := func(what string, p seccomp.Program, want bool, args ...uint64) {
				t.Helper()
				var a [6]uint64
				copy(a[:], args)
				if got := stopsAt(t, p, abi.Arch, nr, a); got != want {
					t.Errorf("%s, arch %#x, call %d: stops %v, want %v", what, abi.Arch, nr, got, want)
				}
			}
			switch c {
			case seccomp.SysIoctl:
				run("a verb", base, true, 5, uapi.RDMA_VERBS_IOCTL)
				run("a verb, as a signed number", base, true, 5, 0xffffffff00000000|uapi.RDMA_VERBS_IOCTL)
				run("another ioctl", base, false, 5, 0x5401)
			case seccomp.SysOpenat:
				run("open to read", base, false, 0, 0, unix.O_RDONLY|unix.O_CLOEXEC)
				run("open to write", base, false, 0, 0, unix.O_WRONLY|unix.O_CREAT)
				run("open for both", base, true, 0, 0, unix.O_RDWR|unix.O_CLOEXEC)
			case seccomp.SysMmap, seccomp.SysMmap2:
				run("memory", base, false, 0, 4096, 3, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0))
				run("shared memory", base, false, 0, 4096, 3, unix.MAP_SHARED|unix.MAP_ANONYMOUS, ^uint64(0))
				run("a library", base, false, 0, 4096, 5, unix.MAP_PRIVATE|unix.MAP_FIXED, 3)
				run("a queue", base, true, 0, 4096, 3, unix.MAP_SHARED, 5)
				run("a queue, with flags that are checked", base, true, 0, 4096, 3, unix.MAP_SHARED_VALIDATE, 5)
			case seccomp.SysWrite:
				run("base, write", base, false, 5, 0, 32)
				run("rxe, the doorbell", uverbs, false, 5, 0, 32)
				run("rxe, a command of a program that writes them", legacy, true, 5, 0, 24)
				run("mlx5, a command", mlx5, true, 5, 0, 24)
				run("cm, a command", cm, true, 5, 0, 32)
				run("cm, another descriptor", cm, false, 6, 0, 32)
				run("a channel", channel, false, 5, 0, 8)
				run("above", above, true, 7, 0, 8)
				run("below", above, false, 4, 0, 8)
			case seccomp.SysWritev:
				run("rxe, a command in pieces", uverbs, false, 5, 0x1000, 1)
				run("rxe, a command in pieces of a program that writes them", legacy, true, 5, 0x1000, 1)
				run("mlx5, a command in pieces", mlx5, true, 5, 0x1000, 1)
				run("cm, a command in pieces", cm, true, 5, 0x1000, 1)
				run("cm, another descriptor", cm, false, 6, 0x1000, 1)
			case seccomp.SysReadv:
				run("a channel's event in pieces", channel, true, 5, 0x1000, 1)
				run("another descriptor", channel, false, 4, 0x1000, 1)
				run("uverbs, read in pieces", uverbs, false, 5, 0x1000, 1)
			case seccomp.SysRead:
				run("base, read", base, false, 5, 0, 8)
				run("a channel's event", channel, true, 5, 0, 8)
				run("another descriptor", channel, false, 4, 0, 8)
				run("uverbs, read", uverbs, false, 5, 0, 8)
			case seccomp.SysDup:
				run("dup", uverbs, true, 5)
				run("dup of another", uverbs, false, 6)
			case seccomp.SysClose:
				run("close", uverbs, true, 5)
				run("close another", uverbs, false, 6)
			case seccomp.SysDup2, seccomp.SysDup3:
				run("from it", uverbs, true, 5, 9)
				run("onto it", uverbs, true, 9, 5)
				run("of others", uverbs, false, 8, 9)
			case seccomp.SysFcntl:
				run("F_DUPFD", uverbs, true, 5, unix.F_DUPFD)
				run("F_DUPFD_CLOEXEC", uverbs, true, 5, unix.F_DUPFD_CLOEXEC)
				run("F_DUPFD of another", uverbs, false, 6, unix.F_DUPFD)
				run("F_SETFL", uverbs, false, 5, unix.F_SETFL)
			case seccomp.SysClone:
				run("a child", base, false, unix.CLONE_VM|uint64(unix.SIGCHLD))
				run("an untraced child", base, true, unix.CLONE_VM|unix.CLONE_UNTRACED)
			case seccomp.SysRecvmsg, seccomp.SysRecvmmsg, seccomp.SysPidfdGetfd:
				run("descriptors arrive", base, true, 5, 0x1000)
			case seccomp.SysSocketcall:
				run("recvmsg", base, true, 17, 0x1000)
				run("recvmmsg", base, true, 19, 0x1000)
				run("recv", base, false, 10, 0x1000)
			case seccomp.SysClone3:
				run("a child", base, true, 0x1000, 88)
			case seccomp.SysGetpid:
				run("getpid", base, false, 0, 0, 0, 0, 0, 0x1234)
				run("a trap", base, true, 0, 0, 0, 0, 0, tracing.Magic<<32|7)
			}
		}
		if stopsAt(t, base, abi.Arch, 9999, [6]uint64{}) || stopsAt(t, uverbs, 1, 1, [6]uint64{5}) {
			t.Error("an unknown call or architecture stops")
		}
	}
}
