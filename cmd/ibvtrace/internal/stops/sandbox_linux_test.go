//go:build amd64 || arm64

package stops

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// TestUnknownFilters: if a new process has more filters than are known, nothing may be
// injected into it.
func TestUnknownFilters(t *testing.T) {
	for _, test := range []struct {
		command bool
		has     int
		unknown bool
	}{{true, 5, false}, {true, 4, false}, {true, 6, true}, {false, 1, false}, {false, 2, true}} {
		s := New(tracee.NewSet(), nil)
		if s.Filtered = test.command; test.command {
			s.Inherited = 2
		}
		p := tracee.Process{Own: []*seccomp.Program{{seccomp.Pass}}, All: !test.command}
		s.given(&p).filters = 2
		s.CheckFilters(&p, test.has)
		if p.Allows(unix.SYS_MMAP) == test.unknown || p.All != (test.unknown || !test.command) {
			t.Errorf("%+v: allowed %v, stops at all %v", test, p.Allows(unix.SYS_MMAP), p.All)
		}
	}
}
