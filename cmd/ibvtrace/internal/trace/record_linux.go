//go:build amd64 || arm64

package trace

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/uapi"
)

// A program that has been started gets a recorder at the end of its first verb on a device,
// if libc is where it calls the kernel from. The rest of this file puts it there; see
// replay_linux.go for what becomes of what it records.

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

// record has verbs recorded that come after one, at the exit of which the thread is.
func (t *tracer) record(th *thread, c *call) {
	p := th.proc
	if !recorder.Supported || t.command == 0 || t.opt.Stop || t.opt.Data || t.opt.Raw ||
		p.all || len(p.own) > 0 || c.file == nil || c.file.kind != fileUverbs {
		return
	}
	driver := uapi.RdmaDriverId(c.verb.Header.DriverId)
	if p.recording == nil {
		if p.recordTries == maxRecordTries {
			return
		}
		p.recordTries++
		// What is changed is the code of functions that other threads may be in.
		if !t.stopOthers(th) {
			return
		}
		r, err := t.startRecording(th, driver)
		if err != nil {
			return // it stops, as it did
		}
		t.recordings = append(t.recordings, r)
		p.recording = r
		t.polling.Do(func() { go t.poll() })
	}
	if r := p.recording; !r.ended && r.driver == driver {
		r.memory.Allow(c.fd, true)
	}
}

var errNoSites = errors.New("no calls of the kernel that can be recorded")

// startRecording puts a recorder into a program, all of whose threads are stopped.
func (t *tracer) startRecording(th *thread, driver uapi.RdmaDriverId) (*recording, error) {
	p := th.proc
	if p.nested {
		return nil, errors.New("it knows its threads by other numbers")
	}
	sites, hint, err := findSites(th.tid)
	if err != nil {
		return nil, err
	}
	in, err := t.inject(th.tid)
	if err != nil {
		return nil, err
	}
	m, code, err := in.startRecording(p.pid, driver, sites, hint)
	if err == errDied {
		return nil, err
	}
	if err2 := in.done(); err == nil && err2 != nil {
		m.Close()
		err = err2
	}
	if err != nil {
		return nil, err
	}
	return &recording{memory: m, code: code, driver: driver, users: 1}, nil
}

// Bounds for the code that is searched, and distances from it: within 2 GiB a jump leads.
const (
	maxCode   = 16 << 20
	nearSites = 64 << 20
	aboveHeap = 1 << 30
)

// findSites returns where the program calls the kernel, and a place near by.
func findSites(tid int) (sites []recorder.Site, hint uint64, err error) {
	maps, err := mappings(tid)
	if err != nil {
		return nil, 0, err
	}
	left := uint64(maxCode)
	for _, m := range maps {
		// Of libraries, not what a program has made itself.
		if !m.exec || m.write || !m.private || len(m.path) == 0 || m.path[0] != '/' || m.end-m.start > left {
			continue
		}
		left -= m.end - m.start
		b := make([]byte, m.end-m.start)
		if readMemory(tid, m.start, b) != nil {
			continue
		}
		found := recorder.Sites(b, m.start)
		if len(found) > 0 {
			hint = m.start - nearSites
			if m.start <= nearSites {
				hint = m.start + aboveHeap // of a program that is not moved
			}
		}
		sites = append(sites, found...)
	}
	if len(sites) == 0 {
		return nil, 0, errNoSites
	}
	return sites, hint, nil
}

// startRecording maps code and memory, the latter from a file that is closed again, and
// makes the sites lead there.
func (in *injector) startRecording(pid int, driver uapi.RdmaDriverId, sites []recorder.Site, hint uint64) (m *recorder.Memory, base uint64, err error) {
	const size = recorder.CodeBytes + recorder.Bytes
	base, err = in.call(unix.SYS_MMAP, hint, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return nil, 0, os.NewSyscallError("mmap", err)
	}
	shared := base + recorder.CodeBytes
	m, err = in.share(pid, driver, base, shared)
	if err == nil {
		code, jumps := recorder.Code(base, shared, sites)
		if err = writeMemory(in.tid, base, code); err == nil {
			// Never writable and executable at once.
			_, err = in.call(unix.SYS_MPROTECT, base, recorder.CodeBytes, unix.PROT_READ|unix.PROT_EXEC)
		}
		for i := 0; err == nil && i < len(jumps); i++ {
			if jumps[i] != nil {
				_, err = unix.PtracePokeData(in.tid, uintptr(sites[i].Addr), jumps[i])
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
	if err != errDied {
		in.call(unix.SYS_MUNMAP, base, size)
	}
	return nil, 0, err
}

// share has the program map a file at an address, and maps it here too.
func (in *injector) share(pid int, driver uapi.RdmaDriverId, scratch, addr uint64) (*recorder.Memory, error) {
	if err := writeMemory(in.tid, scratch, []byte("ibvtrace\x00")); err != nil {
		return nil, err
	}
	fd, err := in.call(unix.SYS_MEMFD_CREATE, scratch, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	m, err := memoryOf(pid, int(fd), driver)
	if err == nil {
		if _, err = in.call(unix.SYS_MMAP, addr, recorder.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, fd, 0); err != nil {
			m.Close()
			if err == errDied {
				return nil, err
			}
		}
	}
	if _, err2 := in.call(unix.SYS_CLOSE, fd); err == nil && err2 != nil {
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

// stopOthers stops the other threads of a thread's process, and reports whether it
// could: one that waits for its child after vfork does not stop. What they stopped for
// is handled later.
func (t *tracer) stopOthers(th *thread) bool {
	for tid, other := range t.threads {
		if other.proc == th.proc && other.running {
			interrupt(tid)
		}
	}
	for end := time.Now().Add(patience / 10); ; time.Sleep(100 * time.Microsecond) {
		running := false
		for tid, other := range t.threads {
			if other.proc != th.proc || !other.running {
				continue
			}
			var ws unix.WaitStatus
			got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil)
			if err != nil || got == 0 {
				running = true
				continue
			}
			other.running = false
			t.waited = append(t.waited, waited{tid, ws})
		}
		if !running {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
