package perftest

import (
	"errors"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newDmabuf creates a dma-buf of whole pages with a device node: /dev/udmabuf, or a heap in
// /dev/dma_heap.
func newDmabuf(node string, size int) (*os.File, error) {
	device, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	make := fromHeap
	if filepath.Base(node) == "udmabuf" {
		make = fromMemory
	}
	fd, err := make(device, uint64(size))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "dma-buf"), nil
}

// fromMemory makes a dma-buf of the process's memory.
func fromMemory(device *os.File, size uint64) (int, error) {
	memory, err := unix.MemfdCreate("ibv", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(memory)
	if err := unix.Ftruncate(memory, int64(size)); err != nil {
		return 0, os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(memory), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return 0, os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	const create, closeOnExec = 0x40187542, 1 // UDMABUF_CREATE, of linux/udmabuf.h
	arg := struct {                           // struct udmabuf_create
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memory), flags: closeOnExec, size: size}
	// The kernel reads arg during the call.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), create, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return 0, os.NewSyscallError("UDMABUF_CREATE", errno)
	}
	return int(fd), nil
}

// fromHeap makes a dma-buf of a heap's memory.
func fromHeap(device *os.File, size uint64) (int, error) {
	const allocate = 0xc0184800 // DMA_HEAP_IOCTL_ALLOC, of linux/dma-heap.h
	arg := struct {             // struct dma_heap_allocation_data
		length      uint64
		fd, fdFlags uint32
		heapFlags   uint64
	}{length: size, fdFlags: unix.O_RDWR | unix.O_CLOEXEC}
	// The kernel reads and writes arg during the call.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), allocate, uintptr(unsafe.Pointer(&arg)))
	switch {
	case errno == unix.ENOTTY || errno == unix.EINVAL:
		return 0, errors.New(device.Name() + " makes no dma-bufs: use /dev/udmabuf or a heap in /dev/dma_heap")
	case errno != 0:
		return 0, os.NewSyscallError("DMA_HEAP_IOCTL_ALLOC", errno)
	}
	return int(arg.fd), nil
}

// mapDmabuf maps a dma-buf.
func mapDmabuf(f *os.File, size int) (mapping, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return mem, nil
}
