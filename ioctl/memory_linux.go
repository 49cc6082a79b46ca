package ioctl

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Why the unsafe code of this file is correct: the addresses are in a mapping made here by
// mmap, which is not Go memory. The slice of MapMemory is the part that remains after the
// ends are unmapped. The slice of Mmap is all of the mapping.

// MapMemory maps n bytes of zeroed memory outside the Go heap, for use by a device.
// Munmap frees it. A forked child doesn't inherit it, because copy-on-write could take
// the pages away from the device.
//
// Memory of at least hugePage bytes is aligned to hugePage, and uses huge pages if the
// kernel permits. Then the device looks up fewer pages, and fewer are pinned.
func MapMemory(n int) ([]byte, error) {
	mem, err := mapAligned(n)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		Munmap(mem)
		return nil, err
	}
	if n >= hugePage {
		// A kernel without huge pages refuses. Small pages work, too.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return mem, nil
}

// hugePage is the size of huge pages on amd64, and on arm64 with pages of 4 KiB.
const hugePage = 2 << 20

// mapAligned maps n bytes, aligned to hugePage if n is at least that.
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

// Mmap maps a queue or a register page that the driver provides at the offset, shared, for
// reading and writing. Its error is a [MapError].
func (f *File) Mmap(offset uint64, size int) ([]byte, error) {
	return f.mmap(offset, size, unix.PROT_READ|unix.PROT_WRITE)
}

// MmapReadOnly is like Mmap, for pages that the driver makes read-only.
func (f *File) MmapReadOnly(offset uint64, size int) ([]byte, error) {
	return f.mmap(offset, size, unix.PROT_READ)
}

func (f *File) mmap(offset uint64, size, prot int) ([]byte, error) {
	if f.other != nil {
		return f.other.Mmap(offset, size)
	}
	// unix.Mmap isn't used, because unix.Munmap holds a lock of all mappings while the
	// kernel unmaps one.
	p, err := unix.MmapPtr(f.fd, int64(offset), nil, uintptr(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, &MapError{err}
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// Munmap unmaps memory of MapMemory, Mmap or MmapReadOnly.
func Munmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
