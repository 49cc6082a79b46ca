//go:build amd64 || arm64

package trace

import (
	"maps"
	"testing"

	"golang.org/x/sys/unix"
)

// withFiles is a process that has files as these descriptors, and a thread of it.
func withFiles(fds ...int) (*tracer, *thread) {
	p := &process{pid: 4, threads: 1, fds: make(map[int]*file), all: true}
	for _, fd := range fds {
		p.setFD(fd, &file{id: fd, kind: fileUverbs})
	}
	th := &thread{tid: 4, proc: p, comm: "test"}
	return &tracer{threads: map[int]*thread{4: th}, processes: map[int]*process{4: p}, sink: new(events)}, th
}

// ids returns which file each descriptor is.
func (p *process) ids() map[int]int {
	m := make(map[int]int)
	for fd, f := range p.fds {
		m[fd] = f.id
	}
	return m
}

// TestDescriptors follows what is done to descriptors, as the kernel says how it ended.
func TestDescriptors(t *testing.T) {
	const cloexec, unshare = 1 << 2, 1 << 1 // <linux/close_range.h>
	for _, test := range []struct {
		name  string
		enter func(*tracer, *thread) *call
		ret   int64
		want  map[int]int // nil: the call does not matter
	}{
		{"close", func(t *tracer, th *thread) *call { return t.enterClose(th, 5) }, 0, map[int]int{6: 6}},
		{"close another", func(t *tracer, th *thread) *call { return t.enterClose(th, 7) }, 0, nil},
		{"close that was interrupted", func(t *tracer, th *thread) *call { return t.enterClose(th, 5) }, -int64(unix.EINTR), map[int]int{6: 6}},
		{"close of none", func(t *tracer, th *thread) *call { return t.enterClose(th, 5) }, -int64(unix.EBADF), map[int]int{5: 5, 6: 6}},
		{"close_range", func(t *tracer, th *thread) *call { return t.enterCloseRange(th, 6, 1<<32-1, 0) }, 0, map[int]int{5: 5}},
		{"close_range of others", func(t *tracer, th *thread) *call { return t.enterCloseRange(th, 7, 9, 0) }, 0, nil},
		{"close_range that failed", func(t *tracer, th *thread) *call { return t.enterCloseRange(th, 6, 9, 8) }, -int64(unix.EINVAL), map[int]int{5: 5, 6: 6}},
		{"close_range that marks", func(t *tracer, th *thread) *call { return t.enterCloseRange(th, 5, 9, cloexec) }, 0, nil},
		{"close_range of an own table", func(t *tracer, th *thread) *call { return t.enterCloseRange(th, 5, 9, unshare) }, 0, map[int]int{}},
		{"dup", func(t *tracer, th *thread) *call { return t.enterDup(th, 5, -1) }, 9, map[int]int{5: 5, 6: 6, 9: 5}},
		{"dup that failed", func(t *tracer, th *thread) *call { return t.enterDup(th, 5, -1) }, -int64(unix.EMFILE), map[int]int{5: 5, 6: 6}},
		{"dup of another", func(t *tracer, th *thread) *call { return t.enterDup(th, 8, -1) }, 9, nil},
		{"dup2", func(t *tracer, th *thread) *call { return t.enterDup(th, 5, 6) }, 6, map[int]int{5: 5, 6: 5}},
		{"dup2 of another onto it", func(t *tracer, th *thread) *call { return t.enterDup(th, 1, 6) }, 6, map[int]int{5: 5}},
		{"dup2 onto itself", func(t *tracer, th *thread) *call { return t.enterDup(th, 5, 5) }, 5, map[int]int{5: 5, 6: 6}},
	} {
		tr, th := withFiles(5, 6)
		c := test.enter(tr, th)
		if (c == nil) != (test.want == nil) {
			t.Errorf("%s: followed: %v", test.name, c != nil)
		}
		if c == nil {
			continue
		}
		tr.complete(th, c, test.ret)
		if got := th.proc.ids(); !maps.Equal(got, test.want) {
			t.Errorf("%s: the files are %v, want %v", test.name, got, test.want)
		}
	}
}

// TestInherit: a child has its parent's files and filters, and each goes its own way then.
func TestInherit(t *testing.T) {
	_, parent := withFiles(5, 6)
	parent.proc.watched, parent.proc.watchedAbove, parent.proc.given = map[int]watching{5: watchClose}, 40, 3
	parent.proc.own = []*program{{pass}}
	child := &process{pid: 9, fds: make(map[int]*file)}
	child.inherit(parent.proc)
	if !maps.Equal(child.ids(), map[int]int{5: 5, 6: 6}) || !child.rdma || parent.proc.fds[5].users != 2 {
		t.Errorf("the child's files are %v", child.ids())
	}
	if !maps.Equal(child.watched, parent.proc.watched) || child.watchedAbove != 40 || child.given != 3 || len(child.own) != 1 || !child.all {
		t.Errorf("the child has the filters %+v", child)
	}
	child.gone()
	child.watched[6] = watchRead
	child.own[0] = new(program)
	if !maps.Equal(parent.proc.ids(), map[int]int{5: 5, 6: 6}) || parent.proc.fds[5].users != 1 ||
		len(parent.proc.watched) != 1 || len(*parent.proc.own[0]) != 1 {
		t.Errorf("the parent was changed by its child: %+v", parent.proc)
	}
}

// TestGenerations: objects that have the same handle one after the other are told apart.
func TestGenerations(t *testing.T) {
	f := &file{objects: make(map[objectKey]*object)}
	k := objectKey{1, 7}
	for want := 1; want <= 3; want++ {
		if o := f.made(k); o.generation != want || !o.alive || o.before {
			t.Errorf("object %d is %+v", want, o)
		}
	}
	if o := f.seen(objectKey{1, 8}); o.generation != 1 || !o.before {
		t.Errorf("one from before is %+v", o)
	}
}

// TestErrors: the last 4095 numbers are errors, those before are addresses.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		result, ret int64
		errno       unix.Errno
	}{{0, 0, 0}, {7, 7, 0}, {-1, -1, unix.EPERM}, {-4095, -1, 4095}, {-4096, -4096, 0}, {-1 << 63, -1 << 63, 0}} {
		tr, th := withFiles()
		c := &call{silent: true}
		tr.complete(th, c, test.result)
		if !c.returned || c.ret != test.ret || c.errno != test.errno {
			t.Errorf("%d: returned %v %d, errno %d, want %d and %d", test.result, c.returned, c.ret, c.errno, test.ret, test.errno)
		}
	}
}
