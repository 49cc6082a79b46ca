//go:build amd64 || arm64

package tracee

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
)

func filterThat(action uint32, nr uint32) *seccomp.Program {
	return &seccomp.Program{seccomp.Load(seccomp.OffsetNr), seccomp.SkipUnless(nr, 1), {Code: unix.BPF_RET | unix.BPF_K, K: action}, seccomp.Pass}
}

// TestAllows: a system call is allowed only if each of the program's filters allows it.
func TestAllows(t *testing.T) {
	for _, test := range []struct {
		name string
		own  []*seccomp.Program
		want bool
	}{
		{"none", nil, true},
		{"another call", []*seccomp.Program{filterThat(unix.SECCOMP_RET_KILL_PROCESS, 500)}, true},
		{"logged", []*seccomp.Program{filterThat(unix.SECCOMP_RET_LOG, unix.SYS_MMAP)}, true},
		{"killed", []*seccomp.Program{filterThat(unix.SECCOMP_RET_KILL_PROCESS, unix.SYS_MMAP)}, false},
		{"thread killed", []*seccomp.Program{filterThat(unix.SECCOMP_RET_KILL_THREAD, unix.SYS_MMAP)}, false},
		{"trapped", []*seccomp.Program{filterThat(unix.SECCOMP_RET_TRAP, unix.SYS_MMAP)}, false},
		{"an error", []*seccomp.Program{filterThat(unix.SECCOMP_RET_ERRNO|1, unix.SYS_MMAP)}, false},
		{"asked", []*seccomp.Program{filterThat(unix.SECCOMP_RET_USER_NOTIF, unix.SYS_MMAP)}, false},
		{"traced", []*seccomp.Program{filterThat(unix.SECCOMP_RET_TRACE, unix.SYS_MMAP)}, false},
		{"the older one", []*seccomp.Program{filterThat(unix.SECCOMP_RET_KILL_PROCESS, unix.SYS_MMAP), {seccomp.Pass}}, false},
		{"the newer one", []*seccomp.Program{{seccomp.Pass}, filterThat(unix.SECCOMP_RET_KILL_PROCESS, unix.SYS_MMAP)}, false},
		{"one that is not known", []*seccomp.Program{{seccomp.Pass}, {}}, false},
	} {
		p := Process{Own: test.own}
		if got := p.Allows(unix.SYS_MMAP, 0, 4096); got != test.want {
			t.Errorf("%s: allowed %v, want %v", test.name, got, test.want)
		}
	}
}
