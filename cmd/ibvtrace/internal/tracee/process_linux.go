//go:build amd64 || arm64

package tracee

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/seccomp"
)

// A Process is a traced process.
type Process struct {
	PID     int
	comm    string // when it last did something
	Threads int
	FDs     map[int]*File
	rdma    bool // it had such files
	Renames bool // it names threads by way of /proc

	// All says that every system call stops, because the process was attached to or takes
	// no filters. Else those stop that its filters choose.
	All bool
	// Own are the filters that it has itself, of any of its threads. Those that could
	// not be read are empty.
	Own []*seccomp.Program

	Nested bool // it is in a namespace that has other ids

	// Left, if it is not nil, is told of each descriptor that is no longer the file that
	// it was.
	Left func(fd int)
}

// NewProcess returns one that has no files as yet.
func NewProcess(pid int) *Process { return &Process{PID: pid, FDs: make(map[int]*File)} }

// Inherit makes the process a copy of its parent's at the fork.
func (p *Process) Inherit(parent *Process) {
	p.All, p.Own = parent.All, slices.Clone(parent.Own)
	for fd, f := range parent.FDs {
		p.SetFD(fd, f)
	}
}

// SetFD notes that a descriptor is a file now, nil: none of RDMA's.
func (p *Process) SetFD(fd int, f *File) {
	if old := p.FDs[fd]; old != nil {
		old.users--
		if p.Left != nil {
			p.Left(fd)
		}
	}
	if f == nil {
		delete(p.FDs, fd)
		return
	}
	p.FDs[fd] = f
	p.rdma = true
	f.users++
}

// AfterExec forgets what the new program has not.
func (p *Process) AfterExec() {
	for fd, f := range p.FDs {
		if now := Identify(p.PID, fd); now.Kind == FileOther || now.Kind == FileUverbs && now.Device != f.Device {
			p.SetFD(fd, nil)
		}
	}
}

// Gone forgets the process.
func (p *Process) Gone() {
	for fd := range p.FDs {
		p.SetFD(fd, nil)
	}
}

// OnlyUverbs returns the process's uverbs file if there is just one.
func (p *Process) OnlyUverbs() *File {
	var only *File
	for _, f := range p.FDs {
		if f.Kind == FileUverbs && f != only {
			if only != nil {
				return nil
			}
			only = f
		}
	}
	return only
}

// FDOf returns a descriptor of the process that is the file, -1 if there is none.
func (p *Process) FDOf(f *File) int {
	for fd, g := range p.FDs {
		if g == f {
			return fd
		}
	}
	return -1
}

// Allows reports whether the process's own filters let a system call pass.
func (p *Process) Allows(nr uint64, args ...uint64) bool {
	d := seccomp.Data{Nr: uint32(nr), Arch: seccomp.ABIs[0].Arch}
	copy(d.Args[:], args)
	for _, f := range p.Own {
		action, ok := f.Run(&d)
		action &= unix.SECCOMP_RET_ACTION_FULL
		if !ok || action != unix.SECCOMP_RET_ALLOW && action != unix.SECCOMP_RET_LOG {
			return false
		}
	}
	return true
}
