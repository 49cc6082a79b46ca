package ioctl

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// TestMapMemory: all of the memory is mapped, zero, not inherited by children, and unmapped
// at the end. Large memory is aligned to huge pages, and requests them.
func TestMapMemory(t *testing.T) {
	for _, n := range []int{1, 4096, 5000, hugePage - 1, hugePage, hugePage + 1, 5*hugePage + 4096} {
		mem, err := MapMemory(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(mem) != n || bytes.ContainsFunc(mem, func(r rune) bool { return r != 0 }) {
			t.Errorf("%d bytes: got %d, or not zero", n, len(mem))
		}
		for i := range mem {
			mem[i] = 1
		}
		addr := uintptr(unsafe.Pointer(&mem[0]))
		flags := vmFlags(t, addr)
		if large := n >= hugePage; !strings.Contains(flags, " dc ") || strings.Contains(flags, " hg ") != large || large && addr%hugePage != 0 {
			t.Errorf("%d bytes at %#x: %s", n, addr, flags)
		}
		if err := Munmap(mem); err != nil {
			t.Error(err)
		}
		if flags := vmFlags(t, addr+uintptr(n-1)); strings.Contains(flags, " dc ") {
			t.Errorf("%d bytes are still there: %s", n, flags)
		}
	}
	for _, n := range []int{0, -1} {
		if _, err := MapMemory(n); err == nil {
			t.Errorf("%d bytes were mapped", n)
		}
	}
}

// vmFlags returns the kernel's flags of the mapping with an address, or "".
func vmFlags(t *testing.T, addr uintptr) string {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`^([0-9a-f]+)-([0-9a-f]+) `)
	in := false
	for line := range strings.Lines(string(smaps)) {
		if m := head.FindStringSubmatch(line); m != nil {
			in = parse(t, m[1]) <= addr && addr < parse(t, m[2])
		} else if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && in {
			return flags
		}
	}
	return ""
}

func parse(t *testing.T, hex string) uintptr {
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(n)
}
