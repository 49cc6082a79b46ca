//go:build amd64 || arm64

package tracee

import (
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/ioctl"
)

// A snapshot caches parts of a thread's memory during a stop. Most reads at a stop are small
// and close together on the stack, so a part of a page is read with one system call. The data
// in it is consistent.
type snapshot struct {
	tid   int
	parts [maxParts]part
	used  int
}

type part struct {
	addr uint64
	n    uint64
	b    [partBytes]byte
}

const (
	partBytes = 1024
	maxParts  = 8
	pageBytes = 4096 // larger pages do no harm
)

// Memory returns a function that reads a thread's memory. It is valid until the next call of
// Memory.
func (t *Set) Memory(th *Thread) ioctl.Memory {
	if th.Replayed != nil {
		return th.Replayed
	}
	t.snapshot.tid = th.TID
	t.snapshot.used = 0
	return t.snapshot.read
}

func (s *snapshot) read(addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	for i := range s.parts[:s.used] {
		p := &s.parts[i]
		if at := addr - p.addr; addr >= p.addr && at <= p.n && p.n-at >= uint64(len(b)) {
			copy(b, p.b[at:])
			return nil
		}
	}
	start := addr &^ (partBytes/4 - 1)
	end := min(start+partBytes, start&^(pageBytes-1)+pageBytes)
	if len(b) > partBytes || addr+uint64(len(b)) > end || end < start || s.used == maxParts {
		return ptrace.ReadMemory(s.tid, addr, b)
	}
	p := &s.parts[s.used]
	p.addr, p.n = start, end-start
	if err := ptrace.ReadMemory(s.tid, start, p.b[:p.n]); err != nil {
		return err // the page is unmapped or not readable
	}
	s.used++
	copy(b, p.b[addr-start:])
	return nil
}
