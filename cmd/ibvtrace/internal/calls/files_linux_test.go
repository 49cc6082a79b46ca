//go:build amd64 || arm64

package calls

import (
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// withFiles returns a decoder, and a thread of a process that has files with these descriptors.
func withFiles(fds ...int) (*Decoder, *tracee.Thread) {
	p := tracee.NewProcess(4)
	p.All = true
	for _, fd := range fds {
		p.SetFD(fd, &tracee.File{ID: fd, Kind: tracee.FileUverbs})
	}
	return NewDecoder(tracee.NewSet(), unmoved{}, unmoved{}, false), &tracee.Thread{TID: 4, Proc: p, Comm: "test"}
}

// unmoved implements stops and verbs, and does nothing.
type unmoved struct{}

func (unmoved) Opened(*tracee.Thread, int, *tracee.File) {}

func (unmoved) Watch(*tracee.Thread, int, *tracee.File) {}

func (unmoved) Succeeded(*tracee.Thread, *tracee.Call) {}

func (unmoved) Returned(*tracee.Thread, *tracee.Call) {}

func (unmoved) Destroyed(int, uint64) {}

// ids returns the file ID of each descriptor.
func ids(p *tracee.Process) map[int]int {
	m := make(map[int]int)
	for fd, f := range p.FDs {
		m[fd] = f.ID
	}
	return m
}

// TestDescriptors checks the descriptors after calls with results of the kernel.
func TestDescriptors(t *testing.T) {
	const cloexec, unshare = 1 << 2, 1 << 1 // <linux/close_range.h>
	for _, test := range []struct {
		name  string
		enter func(*Decoder, *tracee.Thread) *tracee.Call
		ret   int64
		want  map[int]int // nil: the call is not traced
	}{
		{"close", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterClose(th, 5) }, 0, map[int]int{6: 6}},
		{"close another", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterClose(th, 7) }, 0, nil},
		{"close that was interrupted", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterClose(th, 5) }, -int64(unix.EINTR), map[int]int{6: 6}},
		{"close of none", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterClose(th, 5) }, -int64(unix.EBADF), map[int]int{5: 5, 6: 6}},
		{"close_range", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterCloseRange(th, 6, 1<<32-1, 0) }, 0, map[int]int{5: 5}},
		{"close_range of others", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterCloseRange(th, 7, 9, 0) }, 0, nil},
		{"close_range that failed", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterCloseRange(th, 6, 9, 8) }, -int64(unix.EINVAL), map[int]int{5: 5, 6: 6}},
		{"close_range that marks", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterCloseRange(th, 5, 9, cloexec) }, 0, nil},
		{"close_range of an own table", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterCloseRange(th, 5, 9, unshare) }, 0, map[int]int{}},
		{"dup", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterDup(th, 5, -1) }, 9, map[int]int{5: 5, 6: 6, 9: 5}},
		{"dup that failed", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterDup(th, 5, -1) }, -int64(unix.EMFILE), map[int]int{5: 5, 6: 6}},
		{"dup of another", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterDup(th, 8, -1) }, 9, nil},
		{"dup2", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterDup(th, 5, 6) }, 6, map[int]int{5: 5, 6: 5}},
		{"dup2 of another onto it", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterDup(th, 1, 6) }, 6, map[int]int{5: 5}},
		{"dup2 onto itself", func(t *Decoder, th *tracee.Thread) *tracee.Call { return t.EnterDup(th, 5, 5) }, 5, map[int]int{5: 5, 6: 6}},
	} {
		tr, th := withFiles(5, 6)
		c := test.enter(tr, th)
		if (c == nil) != (test.want == nil) {
			t.Errorf("%s: traced: %v", test.name, c != nil)
		}
		if c == nil {
			continue
		}
		tr.Complete(th, c, test.ret)
		if got := ids(th.Proc); !maps.Equal(got, test.want) {
			t.Errorf("%s: the files are %v, want %v", test.name, got, test.want)
		}
	}
}
