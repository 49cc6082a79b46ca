package ioctl

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Why the unsafe code of this file holds: the addresses are those of a mapping that
// mmap made here, which is none of Go's memory, and the slice is what is left of it
// when its ends are given back.

// MapMemory maps n bytes of zeroed memory outside the Go heap, for a device to
// use; FreeMemory frees it. A child of fork doesn't get it: copy-on-write would take
// the pages from the device.
//
// From hugePage on, the memory begins at a multiple of that, and the kernel is asked
// for pages of that size: the device then looks up fewer, and fewer are pinned.
func MapMemory(n int) ([]byte, error) {
	mem, err := mapAligned(n)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		FreeMemory(mem)
		return nil, err
	}
	if n >= hugePage {
		// A kernel without huge pages refuses, and small ones do as well.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return mem, nil
}

// hugePage is the size that amd64 has, and arm64 with pages of 4 KiB.
const hugePage = 2 << 20

// mapAligned maps n bytes, at a multiple of hugePage if they are as many.
func mapAligned(n int) ([]byte, error) {
	if n <= 0 {
		return nil, unix.EINVAL
	}
	page := os.Getpagesize()
	length := (n + page - 1) &^ (page - 1)
	all := length
	if n >= hugePage {
		all += hugePage - page
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(all), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if before := int(-uintptr(p) & (hugePage - 1)); all > length {
		if before > 0 {
			unix.MunmapPtr(p, uintptr(before))
		}
		if after := all - before - length; after > 0 {
			unix.MunmapPtr(unsafe.Add(p, before+length), uintptr(after))
		}
		p = unsafe.Add(p, before)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// FreeMemory frees what MapMemory mapped.
func FreeMemory(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
