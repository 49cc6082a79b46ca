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
	of    map[*tracee.Process]*recording // without one, all verbs of the process stop
	tries map[*tracee.Process]int        // attempts to start a recording
}

// New returns a Recordings for a set. The decoder decodes recorded calls.
func New(s *tracee.Set, calls *calls.Decoder) *Recordings {
	return &Recordings{Set: s, calls: calls, of: make(map[*tracee.Process]*recording), tries: make(map[*tracee.Process]int)}
}

// A recording belongs to a program and its children, which inherit the recorder. It is closed
// when the last of them ends.
type recording struct {
	memory *recorder.Memory
	code   uint64 // address of the recorder
	driver uapi.RdmaDriverId
	users  int  // number of processes
	ended  bool // nothing more is recorded
}

// maxRecordTries bounds the attempts to start a recording, since a program may have no libc.
const maxRecordTries = 3

// Record starts recording verbs on the descriptor of a verb, at whose exit the thread is. It
// reports whether it has inserted a recorder.
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
		// Other threads must not execute the code that is changed.
		if !t.StopOthers(th) {
			return false
		}
		var err error
		if r, err = t.start(th, driver); err != nil {
			return false // verbs continue to stop
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

// give assigns a recording to a process.
func (t *Recordings) give(p *tracee.Process, r *recording) {
	t.of[p] = r
	p.Left = func(fd int) { r.memory.Allow(fd, false) }
	r.users++
}

// Forked assigns a process's recording to its child.
func (t *Recordings) Forked(parent, child *tracee.Process) {
	r := t.of[parent]
	if r == nil {
		return
	}
	t.give(child, r)
	if child.Nested {
		t.End(child) // its records have thread IDs of another namespace
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

var errNoSites = errors.New("no system calls that can be recorded")

// start inserts a recorder into a program, all of whose threads are stopped.
func (t *Recordings) start(th *tracee.Thread, driver uapi.RdmaDriverId) (*recording, error) {
	p := th.Proc
	if p.Nested {
		return nil, errors.New("the program is in a nested PID namespace")
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

// Bounds for the code that is searched, and distances from it to the recorder. A jump reaches
// 2 GiB.
const (
	maxCode   = 16 << 20
	nearSites = 64 << 20
	aboveHeap = 1 << 30
)

// findSites returns the places where the program makes system calls, and an address near
// them.
func findSites(tid int) (sites []recorder.Site, hint uint64, err error) {
	maps, err := ptrace.Mappings(tid)
	if err != nil {
		return nil, 0, err
	}
	left := uint64(maxCode)
	for _, m := range maps {
		// Code of files, not code that the program has generated.
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
				hint = m.Start + aboveHeap // a position-dependent executable
			}
		}
		sites = append(sites, found...)
	}
	if len(sites) == 0 {
		return nil, 0, errNoSites
	}
	return sites, hint, nil
}

// insert maps the recorder's code and memory into the program, and writes jumps to it at the
// sites.
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
			// No memory may be both writable and executable.
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
		// Jumps that have been written do no harm: no descriptor is allowed, so nothing
		// is recorded.
		m.Close()
		return nil, 0, err
	}
	if err != ptrace.ErrDied {
		in.Call(unix.SYS_MUNMAP, base, size)
	}
	return nil, 0, err
}

// share makes the program map a memfd at addr, and maps it into this process too. The program's
// descriptor is closed again.
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

// memoryOf maps a memfd of the program into this process.
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
