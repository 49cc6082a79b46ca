package xfer

import (
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapMemory maps n bytes in pages of a size, or in ordinary ones if it is 0, preferably on a NUMA node, unless
// that is negative. They aren't passed on to child processes, which could otherwise make them
// other pages than the device has.
func mapMemory(n, huge, node int) ([]byte, func() error, error) {
	length, flags := n, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS
	if huge > 0 {
		length = (n + huge - 1) &^ (huge - 1)
		flags |= unix.MAP_HUGETLB | bits.TrailingZeros(uint(huge))<<unix.MAP_HUGE_SHIFT
	}
	mem, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap in pages of %d: %w", huge, err)
	}
	free := func() error { return unix.Munmap(mem) }
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		free()
		return nil, nil, fmt.Errorf("madvise: %w", err)
	}
	if huge == 0 {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a kernel without huge pages refuses
	}
	if node >= 0 {
		if err := touchOn(mem, node); err != nil {
			free()
			return nil, nil, err
		}
	}
	return mem[:n:n], free, nil
}

// touchOn makes the kernel allocate the pages of memory, preferably on a NUMA node.
func touchOn(mem []byte, node int) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and its policy with it
		var set unix.CPUSet
		set.Set(node)
		if err := unix.SetMemPolicy(unix.MPOL_PREFERRED, &set); err != nil && err != unix.ENOSYS {
			result <- fmt.Errorf("prefer memory of node %d: %w", node, err)
			return
		}
		for i := 0; i < len(mem); i += os.Getpagesize() {
			mem[i] = 0
		}
		result <- nil
	}()
	return <-result
}

// numaNode returns the NUMA node of a device, or a negative number if that isn't known.
func numaNode(device string) int {
	b, err := os.ReadFile("/sys/class/infiniband/" + device + "/device/numa_node")
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return node
}

func mapFile(f *os.File, off int64, n int, readOnly bool) ([]byte, func() error, error) {
	prot := unix.PROT_READ
	if !readOnly {
		prot |= unix.PROT_WRITE
	}
	c, err := f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var mem []byte
	bad := c.Control(func(fd uintptr) { mem, err = unix.Mmap(int(fd), off, n, prot, unix.MAP_SHARED) })
	if bad != nil {
		err = bad
	}
	if err != nil {
		return nil, nil, err
	}
	return mem, func() error { return unix.Munmap(mem) }, nil
}

// duplicate returns another descriptor of the same file.
func duplicate(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(n), "dma-buf"), nil
}
