//go:build amd64 || arm64

package tracee

import (
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
)

// ids returns the file ID of each descriptor.
func (p *Process) ids() map[int]int {
	m := make(map[int]int)
	for fd, f := range p.FDs {
		m[fd] = f.ID
	}
	return m
}

// TestInherit: a child inherits its parent's files and filters. Later changes to one do not
// affect the other.
func TestInherit(t *testing.T) {
	parent := NewProcess(4)
	parent.All = true
	for _, fd := range []int{5, 6} {
		parent.SetFD(fd, &File{ID: fd, Kind: FileUverbs})
	}
	parent.Own = []*seccomp.Program{{seccomp.Pass}}
	child := NewProcess(9)
	child.Inherit(parent)
	if !maps.Equal(child.ids(), map[int]int{5: 5, 6: 6}) || parent.FDs[5].users != 2 {
		t.Errorf("the child's files are %v", child.ids())
	}
	if len(child.Own) != 1 || !child.All {
		t.Errorf("the child has the filters %+v", child)
	}
	child.Gone()
	child.Own[0] = new(seccomp.Program)
	if !maps.Equal(parent.ids(), map[int]int{5: 5, 6: 6}) || parent.FDs[5].users != 1 || len(*parent.Own[0]) != 1 {
		t.Errorf("the parent was changed by its child: %+v", parent)
	}
}

// TestNoteExit: the end of a process that called verbs is shown, with no descriptor.
func TestNoteExit(t *testing.T) {
	set, p := NewSet(), NewProcess(4)
	p.SetFD(5, &File{}) // inherited
	set.NoteExit(p, 3<<8)
	if len(set.Done) != 0 {
		t.Error("the end of a process that did nothing is shown")
	}
	set.Complete(&Thread{TID: 4, Proc: p}, &Call{File: new(File)}, 0)
	set.Done = nil
	set.NoteExit(p, 3<<8)
	set.NoteExit(p, unix.WaitStatus(unix.SIGKILL))
	if len(set.Done) != 2 {
		t.Fatalf("%d events", len(set.Done))
	}
	exited, killed := set.Done[0].Event(), set.Done[1].Event()
	if exited.Verb != "exited" || exited.Ret != 3 || exited.PID != 4 || exited.FD != -1 || len(exited.Args) != 1 || exited.Args[0].Value.Num != 3 {
		t.Errorf("%+v", exited)
	}
	if killed.Verb != "killed" || killed.FD != -1 || len(killed.Args) != 1 || killed.Args[0].Value.Str != "SIGKILL" {
		t.Errorf("%+v", killed)
	}
}

// TestGenerations: generations distinguish objects that reuse a handle.
func TestGenerations(t *testing.T) {
	f := &File{Objects: make(map[ObjectKey]*object)}
	k := ObjectKey{1, 7}
	for want := 1; want <= 3; want++ {
		if o := f.Made(k); o.generation != want || !o.Alive || o.before {
			t.Errorf("object %d is %+v", want, o)
		}
	}
	if o := f.Seen(ObjectKey{1, 8}); o.generation != 1 || !o.before {
		t.Errorf("one from before is %+v", o)
	}
}

// TestErrors: results from -4095 to -1 are errors. Lower ones may be addresses.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		result, ret int64
		errno       unix.Errno
	}{{0, 0, 0}, {7, 7, 0}, {-1, -1, unix.EPERM}, {-4095, -1, 4095}, {-4096, -4096, 0}, {-1 << 63, -1 << 63, 0}} {
		tr, th := NewSet(), &Thread{Proc: NewProcess(4)}
		c := &Call{Silent: true}
		tr.Complete(th, c, test.result)
		if !c.Returned || c.Ret != test.ret || c.Errno != test.errno {
			t.Errorf("%d: returned %v %d, errno %d, want %d and %d", test.result, c.Returned, c.Ret, c.Errno, test.ret, test.errno)
		}
	}
}

// TestErrnoName: the errors with which the kernel restarts system calls have names too.
func TestErrnoName(t *testing.T) {
	for e, want := range map[unix.Errno]string{
		unix.EINVAL: "EINVAL", 512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 515: "E515", 516: "ERESTART_RESTARTBLOCK", 4095: "E4095",
	} {
		if got := errnoName(e); got != want {
			t.Errorf("%d is %s, want %s", int(e), got, want)
		}
	}
}
