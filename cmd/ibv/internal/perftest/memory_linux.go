package perftest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A mapping is memory outside the Go heap.
type mapping []byte

func (m mapping) Close() error { return unix.Munmap(m) }

// mapHuge maps huge pages of the default size.
func mapHuge(size int) (mapping, error) {
	page, err := hugePage()
	if err != nil {
		return nil, err
	}
	size = (size + page - 1) / page * page
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
}

// hugePage returns the default size of huge pages.
func hugePage() (size int, err error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(info)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "Hugepagesize:" {
			size, err = strconv.Atoi(words[1])
			return size << 10, err
		}
	}
	return 0, errors.New("the kernel has none")
}

// mapFile maps a part of a file. The file must be long enough, because an access behind its end is
// fatal.
func mapFile(name string, offset, size int) (mapping, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() && info.Size()-int64(size) < int64(offset) {
		return nil, fmt.Errorf("%s has %d bytes", name, info.Size())
	}
	mem, err := unix.Mmap(int(f.Fd()), int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return mem, nil
}
