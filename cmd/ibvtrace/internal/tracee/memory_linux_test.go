//go:build amd64 || arm64

package tracee

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestSnapshot: reads at a stop get what is in memory, within a part and beyond its end, and what can't
// be read fails however often it is tried.
func TestSnapshot(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 2*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	page := os.Getpagesize()
	for i := range page {
		mem[i] = byte(i % 251)
	}
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	s := &snapshot{tid: os.Getpid()}
	for _, r := range []struct{ at, n int }{{0, 8}, {4, 8}, {1020, 8}, {1023, 1}, {1024, 4}, {100, 2000}, {page - 8, 8}, {page - 1, 1}, {3, 0}} {
		b := make([]byte, r.n)
		if err := s.read(base+uint64(r.at), b); errors.Is(err, unix.ENOSYS) {
			t.Skip("emulators of one program don't copy its memory")
		} else if err != nil || !bytes.Equal(b, mem[r.at:][:r.n]) {
			t.Errorf("%d bytes at %d: % x, %v", r.n, r.at, b, err)
		}
	}
	used := s.used
	for range 2 * maxParts {
		if err := s.read(base+uint64(page)+16, make([]byte, 8)); err == nil {
			t.Error("memory without permission was read")
		}
	}
	if s.used != used {
		t.Errorf("%d parts of memory that can't be read are kept", s.used-used)
	}
	// More places than there are parts.
	for i := range 2 * maxParts {
		at := i * 256 % page
		b := make([]byte, 1)
		if err := s.read(base+uint64(at), b); err != nil || b[0] != byte(at%251) {
			t.Errorf("the byte at %d is %d, %v", at, b[0], err)
		}
	}
}
