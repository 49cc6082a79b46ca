//go:build amd64 || arm64

package trace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// stops reports whether a call stops for a filter.
func (p program) stops(t *testing.T, arch, nr uint32, args [6]uint64) bool {
	t.Helper()
	action, ok := p.run(&seccompData{nr, arch, args})
	if !ok {
		t.Fatal("the filter is none")
	}
	return action == unix.SECCOMP_RET_TRACE
}

func TestFilters(t *testing.T) {
	base := baseFilter()
	uverbs := fdFilter(5, false, (&file{kind: fileUverbs, driver: uapi.RDMA_DRIVER_RXE}).watches())
	legacy := fdFilter(5, false, (&file{kind: fileUverbs, driver: uapi.RDMA_DRIVER_RXE, legacy: true}).watches())
	mlx5 := fdFilter(5, false, (&file{kind: fileUverbs, driver: uapi.RDMA_DRIVER_MLX5}).watches())
	cm := fdFilter(5, false, (&file{kind: fileCM}).watches())
	channel := fdFilter(5, false, (&file{kind: fileChannel}).watches())
	above := fdFilter(5, true, watchClose|watchRead|watchWrite)
	for name, p := range map[string]program{"base": base, "fd": mlx5, "above": above} {
		if len(p) > 4096 {
			t.Errorf("%s: %d instructions, the kernel takes 4096", name, len(p))
		}
	}
	for _, abi := range abis {
		for nr, c := range abi.calls {
			run := func(what string, p program, want bool, args ...uint64) {
				t.Helper()
				var a [6]uint64
				copy(a[:], args)
				if got := p.stops(t, abi.arch, nr, a); got != want {
					t.Errorf("%s, arch %#x, call %d: stops %v, want %v", what, abi.arch, nr, got, want)
				}
			}
			switch c {
			case sysIoctl:
				run("a verb", base, true, 5, uapi.RDMA_VERBS_IOCTL)
				run("a verb, as a signed number", base, true, 5, 0xffffffff00000000|uapi.RDMA_VERBS_IOCTL)
				run("another ioctl", base, false, 5, 0x5401)
				run("a verb that is recorded", base, false, 5, uapi.RDMA_VERBS_IOCTL, 0x1000, 0, 0, 0x7665_5272<<32)
			case sysOpenat:
				run("open to read", base, false, 0, 0, unix.O_RDONLY|unix.O_CLOEXEC)
				run("open to write", base, false, 0, 0, unix.O_WRONLY|unix.O_CREAT)
				run("open for both", base, true, 0, 0, unix.O_RDWR|unix.O_CLOEXEC)
			case sysMmap, sysMmap2:
				run("memory", base, false, 0, 4096, 3, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0))
				run("shared memory", base, false, 0, 4096, 3, unix.MAP_SHARED|unix.MAP_ANONYMOUS, ^uint64(0))
				run("a library", base, false, 0, 4096, 5, unix.MAP_PRIVATE|unix.MAP_FIXED, 3)
				run("a queue", base, true, 0, 4096, 3, unix.MAP_SHARED, 5)
				run("a queue, with flags that are checked", base, true, 0, 4096, 3, unix.MAP_SHARED_VALIDATE, 5)
				run("a queue that is recorded", base, false, 0, 4096, 3, unix.MAP_SHARED, 0x7665_5272<<32|5)
			case sysWrite:
				run("base, write", base, false, 5, 0, 32)
				run("rxe, the doorbell", uverbs, false, 5, 0, 32)
				run("rxe, a command of a program that gives them so", legacy, true, 5, 0, 24)
				run("mlx5, a command", mlx5, true, 5, 0, 24)
				run("cm, a command", cm, true, 5, 0, 32)
				run("cm, another descriptor", cm, false, 6, 0, 32)
				run("a channel", channel, false, 5, 0, 8)
				run("above", above, true, 7, 0, 8)
				run("below", above, false, 4, 0, 8)
			case sysWritev:
				run("rxe, a command in pieces", uverbs, false, 5, 0x1000, 1)
				run("rxe, a command in pieces of a program that gives them so", legacy, true, 5, 0x1000, 1)
				run("mlx5, a command in pieces", mlx5, true, 5, 0x1000, 1)
				run("cm, a command in pieces", cm, true, 5, 0x1000, 1)
				run("cm, another descriptor", cm, false, 6, 0x1000, 1)
			case sysReadv:
				run("a channel's event in pieces", channel, true, 5, 0x1000, 1)
				run("another descriptor", channel, false, 4, 0x1000, 1)
				run("uverbs, read in pieces", uverbs, false, 5, 0x1000, 1)
			case sysRead:
				run("base, read", base, false, 5, 0, 8)
				run("a channel's event", channel, true, 5, 0, 8)
				run("another descriptor", channel, false, 4, 0, 8)
				run("uverbs, read", uverbs, false, 5, 0, 8)
			case sysDup:
				run("dup", uverbs, true, 5)
				run("dup of another", uverbs, false, 6)
			case sysClose:
				run("close", uverbs, true, 5)
				run("close another", uverbs, false, 6)
			case sysDup2, sysDup3:
				run("from it", uverbs, true, 5, 9)
				run("onto it", uverbs, true, 9, 5)
				run("of others", uverbs, false, 8, 9)
			case sysFcntl:
				run("F_DUPFD", uverbs, true, 5, unix.F_DUPFD)
				run("F_DUPFD_CLOEXEC", uverbs, true, 5, unix.F_DUPFD_CLOEXEC)
				run("F_DUPFD of another", uverbs, false, 6, unix.F_DUPFD)
				run("F_SETFL", uverbs, false, 5, unix.F_SETFL)
			case sysClone:
				run("a child", base, false, unix.CLONE_VM|uint64(unix.SIGCHLD))
				run("a child that is to be no tracer's", base, true, unix.CLONE_VM|unix.CLONE_UNTRACED)
			case sysClone3:
				run("a child", base, true, 0x1000, 88)
			case sysGetpid:
				run("getpid", base, false, 0, 0, 0, 0, 0, 0x1234)
				run("a trap", base, true, 0, 0, 0, 0, 0, tracing.Magic<<32|7)
			}
		}
		if base.stops(t, abi.arch, 9999, [6]uint64{}) || uverbs.stops(t, 1, 1, [6]uint64{5}) {
			t.Error("an unknown call or architecture stops")
		}
	}
}

func TestMapped(t *testing.T) {
	const page = 4096
	for offset, want := range map[uint64]string{
		3 * page:                      "UAR page 3",
		(2<<8 | 4) * page:             "UAR page 4, write-combining",
		5 << 8 * page:                 "core clock page",
		7 << 8 * page:                 "clock info page",
		(6<<8 | 0x34 | 1<<16) * page:  "UAR page 308, allocated, write-combining",
		(77<<8 | 0x02 | 0<<16) * page: "mlx5 object, command 77, index 2",
	} {
		if got := mlx5Mapped(offset / page); got != want {
			t.Errorf("offset %#x is %q, want %q", offset, got, want)
		}
	}
	f := file{kind: fileUverbs, driver: uapi.RDMA_DRIVER_MLX5}
	f.offer(77<<8*page, "uar 4")
	if got := f.mapped(77 << 8 * page); got != "uar 4" {
		t.Errorf("what a verb offered is %q", got)
	}
}

func TestSockaddr(t *testing.T) {
	pad := func(b ...byte) []byte { return append(b, make([]byte, 128-len(b))...) }
	for want, b := range map[string][]byte{
		"192.168.77.1:7174": pad(2, 0, 0x1c, 0x06, 192, 168, 77, 1),
		"[fe80::1%3]:80":    pad(10, 0, 0, 80, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0),
		"none":              pad(),
	} {
		if got, err := formatSockaddr(b); got != want || err != nil {
			t.Errorf("%x is %q, %v, want %q", b[:28], got, err, want)
		}
	}
	for _, b := range [][]byte{nil, {2, 0}, {99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, pad(10)[:20]} {
		if got, err := formatSockaddr(b); err == nil {
			t.Errorf("%x is an address: %q", b, got)
		}
	}
}
