package selftest

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// hostKinds are the kinds of memory that Linux provides.
var hostKinds = []kind{
	{name: "transparent huge pages", make: func(c *check, e *end) (*region, error) {
		mem, err := c.mapped(2<<21, unix.PROT_READ|unix.PROT_WRITE, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.Madvise(mem, unix.MADV_HUGEPAGE); err != nil {
			return nil, notThere("transparent huge pages: %v", err)
		}
		// The middle, so that the region crosses from one huge page to the next.
		return c.register(e, mem[1<<21-5000:][:regionSize], verbs.MROptions{Access: localAll})
	}},
	{name: "huge pages", make: func(c *check, e *end) (*region, error) {
		mem, err := c.mapped(1<<21, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_HUGETLB)
		if err != nil {
			return nil, notThere("free huge pages: %v", err)
		}
		return c.register(e, mem[:regionSize], verbs.MROptions{Access: localAll})
	}},
	{name: "memory that is read-only for the process", make: func(c *check, e *end) (*region, error) {
		mem, err := c.mapped(1<<14, unix.PROT_READ|unix.PROT_WRITE, 0)
		if err != nil {
			return nil, err
		}
		scenario.Fill(mem, 8)
		if err := unix.Mprotect(mem, unix.PROT_READ); err != nil {
			return nil, err
		}
		m, err := c.register(e, mem[:regionSize], verbs.MROptions{Access: verbs.AccessRemoteRead})
		if err != nil {
			return nil, err
		}
		m.readOnly = true
		return m, nil
	}},
	{name: "a dma-buf of ordinary memory", make: udmabuf},
}

// mapped maps anonymous memory.
func (c *check) mapped(n, prot, flags int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return nil, err
	}
	c.closing("memory", func() error { return unix.Munmap(mem) })
	return mem, nil
}

// udmabuf creates a dma-buf with /dev/udmabuf.
func udmabuf(c *check, e *end) (*region, error) {
	device, err := os.OpenFile("/dev/udmabuf", os.O_RDWR, 0)
	if err != nil {
		return nil, notThere("udmabuf: %v", err)
	}
	c.closing("udmabuf", device.Close)
	const n = 1 << 16
	file, err := unix.MemfdCreate("selftest", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	c.closing("memory", func() error { return unix.Close(file) })
	if err := unix.Ftruncate(file, n); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(file, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	c.closing("memory", func() error { return unix.Munmap(mem) })
	const create = 0x40187542 // UDMABUF_CREATE
	arg := struct {
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(file), flags: 1, size: n} // UDMABUF_FLAGS_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), create, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return nil, notThere("udmabuf: %v", errno)
	}
	c.closing("dma-buf", func() error { return unix.Close(int(fd)) })
	const iova = 0x12340000 // a page may have 64 KiB
	mr, err := e.pd.RegDmabufMR(verbs.DmabufOptions{FD: int(fd), Length: n, IOVA: iova, Access: localAll & e.side.rights})
	if err != nil {
		return nil, unlessThere(err, "memory regions of dma-bufs")
	}
	c.closing("MR", mr.Close)
	return &region{mr: mr, mem: mem[:regionSize]}, nil
}
