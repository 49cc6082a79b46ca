package ioctl

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// A File is an open uverbs device, /dev/infiniband/uverbsN, and the driver
// behind it. Its methods are safe for concurrent use, but for Close, which
// must come after all others.
type File struct {
	fd     int
	driver uint32
	answer func(cmd uint64) syscall.Errno // nil: the kernel's
}

// Open opens the device node.
func Open(path string) (*File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &File{fd: fd}, nil
	}
}

// NewFile takes over a descriptor that is open already: one that another process
// gave, for example. [File.Probe] finds its driver.
func NewFile(fd int) *File { return &File{fd: fd} }

// NewFake is NewFile for tests of what is built on this package: answer runs in
// the place of the ioctl, with its argument, which Decode reads.
func NewFake(fd int, answer func(cmd uint64) syscall.Errno) *File {
	return &File{fd: fd, answer: answer}
}

// unassignedMethod is a method id that no object has.
const unassignedMethod = 0x0fff

// Probe tells whether the device is driven by the driver, and if so addresses
// later commands to it. The kernel compares the driver's number before all
// else, so a method that doesn't exist tells EPROTONOSUPPORT from EINVAL
// without doing anything.
func (f *File) Probe(driver uapi.RdmaDriverId) (bool, error) {
	c := begin(uapi.UVERBS_OBJECT_DEVICE, unassignedMethod)
	defer c.Release()
	c.checked = true
	probe := File{fd: f.fd, driver: uint32(driver), answer: f.answer}
	switch err := c.Run(&probe); {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		f.driver = uint32(driver)
		return true, nil
	case errors.Is(err, unix.EINVAL):
		return false, nil
	default:
		return false, err
	}
}

// FD returns the file descriptor.
func (f *File) FD() int { return f.fd }

// Mmap maps a queue or a register page that the driver offers at the offset,
// shared, for reading and writing.
func (f *File) Mmap(offset uint64, size int) ([]byte, error) {
	return unix.Mmap(f.fd, int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// MmapReadOnly is Mmap for pages that the driver lets nobody write.
func (f *File) MmapReadOnly(offset uint64, size int) ([]byte, error) {
	return unix.Mmap(f.fd, int64(offset), size, unix.PROT_READ, unix.MAP_SHARED)
}

// Munmap ends what Mmap or MmapReadOnly mapped.
func Munmap(b []byte) error { return unix.Munmap(b) }

// Close closes the device; the kernel then releases every object made through it.
func (f *File) Close() error { return unix.Close(f.fd) }
