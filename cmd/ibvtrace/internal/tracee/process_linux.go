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
	comm    string // the name of the thread that made the last call
	Threads int
	FDs     map[int]*File
	rdma    bool // a call of it on an RDMA file has been shown, or a file that it had before
	Renames bool // it names threads through /proc

	// All says that every system call stops, because the process was attached to or can't
	// install filters. Otherwise the filters select the system calls that stop.
	All bool
	// Own are the seccomp filters that the program has installed itself, in any of its
	// threads. A filter that could not be read is empty.
	Own []*seccomp.Program

	Nested bool // it is in a nested PID namespace
}

// NewProcess returns a process without files.
func NewProcess(pid int) *Process { return &Process{PID: pid, FDs: make(map[int]*File)} }

// Inherit copies the state that a process inherits from its parent at the fork.
func (p *Process) Inherit(parent *Process) {
	p.All, p.Own = parent.All, slices.Clone(parent.Own)
	for fd, f := range parent.FDs {
		p.SetFD(fd, f)
	}
}

// SetFD records the file that a descriptor now refers to, nil if it is no RDMA file.
func (p *Process) SetFD(fd int, f *File) {
	if old := p.FDs[fd]; old != nil {
		old.users--
	}
	if f == nil {
		delete(p.FDs, fd)
		return
	}
	p.FDs[fd] = f
	f.users++
}

// AfterExec forgets descriptors that an exec has closed.
func (p *Process) AfterExec() {
	for fd, f := range p.FDs {
		if now := Identify(p.PID, fd); now.Kind == FileOther || now.Kind == FileUverbs && now.Device != f.Device {
			p.SetFD(fd, nil)
		}
	}
}

// Gone drops the process's references to files.
func (p *Process) Gone() {
	for fd := range p.FDs {
		p.SetFD(fd, nil)
	}
}

// OnlyUverbs returns the process's uverbs file if there is exactly one.
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

// FDOf returns a descriptor that refers to the file, or -1.
func (p *Process) FDOf(f *File) int {
	for fd, g := range p.FDs {
		if g == f {
			return fd
		}
	}
	return -1
}

// Allows reports whether the process's own filters allow a system call.
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
