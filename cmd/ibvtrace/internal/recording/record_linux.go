//go:build amd64 || arm64

package recording

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/uapi"
)

// A Recordings has the recordings of the programs of a set.
type Recordings struct {
	*tracee.Set
	calls *calls.Decoder
	all   []*recording
	of    map[*tracee.Process]*recording // nil: all its verbs stop
	tries map[*tracee.Process]int        // to start one
}

// New returns one for the programs of a set, whose recorded calls a decoder
// decodes.
func New(s *tracee.Set, calls *calls.Decoder) *Recordings {
	return &Recordings{Set: s, calls: calls, of: make(map[*tracee.Process]*recording), tries: make(map[*tracee.Process]int)}
}

// A recording is what a program and its children have been given. It lives as long
// as one of them.
type recording struct {
	memory *recorder.Memory
	code   uint64 // where the recorder is
	driver uapi.RdmaDriverId
	users  int  // processes
	ended  bool // nothing more is to be recorded
}

// maxRecordTries bounds how often it is tried: a program may have no libc.
const maxRecordTries = 3

// Record has verbs recorded that come after one, at the exit of which the thread is. It
// reports whether this is the first of its program.
func (t *Recordings) Record(th *tracee.Thread, c *tracee.Call) (begun bool) {
	p := th.Proc
	if !recorder.Supported || p.All || len(p.Own) > 0 || c.File == nil || c.File.Kind != tracee.FileUverbs {
		return false
	}
	driver := uapi.RdmaDriverId(c.Verb.Header.DriverId)
	r := t.of[p]
	if r == nil {
		if t.tries[p] == maxRecordTries {
			return false
		}
		t.tries[p]++
		// What is changed is the code of functions that other threads may be in.
		if !t.StopOthers(th) {
			return false
		}
		var err error
		if r, err = t.start(th, driver); err != nil {
			return false // it stops, as it did
		}
		t.all = append(t.all, r)
		t.give(p, r)
		begun = true
	}
	if !r.ended && r.driver == driver {
		r.memory.Allow(c.FD, true)
	}
	return begun
}

// give makes a recording a process's.
func (t *Recordings) give(p *tracee.Process, r *recording) {
	t.of[p] = r
	p.Left = func(fd int) { r.memory.Allow(fd, false) }
	r.users++
}

// Forked has a process's child have its parent's recording.
func (t *Recordings) Forked(parent, child *tracee.Process) {
	r := t.of[parent]
	if r == nil {
		return
	}
	t.give(child, r)
	if child.Nested {
		t.End(child) // who does what in it would not be known
	}
}

// Has reports whether a process has a recording.
func (t *Recordings) Has(p *tracee.Process) bool { return t.of[p] != nil }

// InRecorder reports whether a stopped thread is in a recorder.
func (t *Recordings) InRecorder(th *tracee.Thread) bool {
	r := t.of[th.Proc]
	if r == nil {
		return false
	}
	regs, err := ptrace.GetRegisters(th.TID)
	return err == nil && regs.PC()-r.code < recorder.CodeBytes
}

var errNoSites = errors.New("no calls of the kernel that can be recorded")

// start puts a recorder into a program, all of whose threads are stopped.
func (t *Recordings) start(th *tracee.Thread, driver uapi.RdmaDriverId) (*recording, error) {
	p := th.Proc
	if p.Nested {
		return nil, errors.New("it knows its threads by other numbers")
	}
	sites, hint, err := findSites(th.TID)
	if err != nil {
		return nil, err
	}
	in, err := t.Inject(th)
	if err != nil {
		return nil, err
	}
	m, code, err := insert(in, p.PID, driver, sites, hint)
	if err == ptrace.ErrDied {
		return nil, err
	}
	if err2 := in.Done(); err == nil && err2 != nil {
		m.Close()
		err = err2
	}
	if err != nil {
		return nil, err
	}
	return &recording{memory: m, code: code, driver: driver}, nil
}

// Bounds for the code that is searched, and distances from it: within 2 GiB a jump leads.
const (
	maxCode   = 16 << 20
	nearSites = 64 << 20
	aboveHeap = 1 << 30
)

// findSites returns where the program calls the kernel, and a place near by.
func findSites(tid int) (sites []recorder.Site, hint uint64, err error) {
	maps, err := ptrace.Mappings(tid)
	if err != nil {
		return nil, 0, err
	}
	left := uint64(maxCode)
	for _, m := range maps {
		// Of libraries, not what a program has made itself.
		if !m.Exec || m.Write || !m.Private || len(m.Path) == 0 || m.Path[0] != '/' || m.End-m.Start > left {
			continue
		}
		left -= m.End - m.Start
		b := make([]byte, m.End-m.Start)
		if ptrace.ReadMemory(tid, m.Start, b) != nil {
			continue
		}
		found := recorder.Sites(b, m.Start)
		if len(found) > 0 {
			hint = m.Start - nearSites
			if m.Start <= nearSites {
				hint = m.Start + aboveHeap // of a program that is not moved
			}
		}
		sites = append(sites, found...)
	}
	if len(sites) == 0 {
		return nil, 0, errNoSites
	}
	return sites, hint, nil
}

// insert maps code and memory, the latter from a file that is closed again, and
// makes the sites lead there.
func insert(in *ptrace.Injector, pid int, driver uapi.RdmaDriverId, sites []recorder.Site, hint uint64) (m *recorder.Memory, base uint64, err error) {
	const size = recorder.CodeBytes + recorder.Bytes
	base, err = in.Call(unix.SYS_MMAP, hint, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return nil, 0, os.NewSyscallError("mmap", err)
	}
	shared := base + recorder.CodeBytes
	m, err = share(in, pid, driver, base, shared)
	if err == nil {
		code, jumps := recorder.Code(base, shared, sites)
		if err = ptrace.WriteMemory(in.TID, base, code); err == nil {
			// Never writable and executable at once.
			_, err = in.Call(unix.SYS_MPROTECT, base, recorder.CodeBytes, unix.PROT_READ|unix.PROT_EXEC)
		}
		for i := 0; err == nil && i < len(jumps); i++ {
			if jumps[i] != nil {
				_, err = unix.PtracePokeData(in.TID, uintptr(sites[i].Addr), jumps[i])
			}
		}
		if err == nil {
			return m, base, nil
		}
		// Nothing is recorded without a descriptor that is allowed: what leads there
		// already does no harm.
		m.Close()
		return nil, 0, err
	}
	if err != ptrace.ErrDied {
		in.Call(unix.SYS_MUNMAP, base, size)
	}
	return nil, 0, err
}

// share has the program map a file at an address, and maps it here too.
func share(in *ptrace.Injector, pid int, driver uapi.RdmaDriverId, scratch, addr uint64) (*recorder.Memory, error) {
	if err := ptrace.WriteMemory(in.TID, scratch, []byte("ibvtrace\x00")); err != nil {
		return nil, err
	}
	fd, err := in.Call(unix.SYS_MEMFD_CREATE, scratch, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	m, err := memoryOf(pid, int(fd), driver)
	if err == nil {
		if _, err = in.Call(unix.SYS_MMAP, addr, recorder.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, fd, 0); err != nil {
			m.Close()
			if err == ptrace.ErrDied {
				return nil, err
			}
		}
	}
	if _, err2 := in.Call(unix.SYS_CLOSE, fd); err == nil && err2 != nil {
		m.Close()
		err = err2
	}
	return m, err
}

// memoryOf makes a descriptor of the program the memory.
func memoryOf(pid, fd int, driver uapi.RdmaDriverId) (*recorder.Memory, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	defer unix.Close(own)
	m, err := recorder.NewMemory(own, driver)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	return m, nil
}
