package verbs

import (
	"golang.org/x/sys/unix"
)

// allocMemory maps n bytes of zeroed memory outside the Go heap. A child of
// fork doesn't get it: copy-on-write would take the pages from the device.
func allocMemory(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		unix.Munmap(b)
		return nil, err
	}
	return b, nil
}

func freeMemory(b []byte) { unix.Munmap(b) }

func setNonblock(fd int) { unix.SetNonblock(fd, true) }
