package ioctl

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/uapi"
)

// A File is an open uverbs device, /dev/infiniband/uverbsN, and its driver. Its methods are
// safe for concurrent use, except for Close, which must be the last.
type File struct {
	fd     int
	driver uint32
	other  kernel.File // used in place of fd, if not nil
}

// Open opens the device node.
func Open(path string) (*File, error) {
	if k := kernel.Current(); k != nil {
		other, err := k.OpenVerbs(path)
		if err != nil {
			return nil, err
		}
		return &File{fd: -1, other: other}, nil
	}
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

// NewFile returns a File for an open descriptor, such as one received from another process.
// It takes ownership of the descriptor. [File.Probe] finds its driver.
func NewFile(fd int) *File {
	f := &File{fd: fd}
	if answer := kernel.Answer(fd); answer != nil {
		return &File{fd: fd, other: answering{f, answer}}
	}
	return f
}

// answering handles ioctls in this process, in place of a device.
type answering struct {
	*File
	answer func(cmd uint64) syscall.Errno
}

func (f answering) Ioctl(cmd uint64) syscall.Errno { return f.answer(cmd) }
func (f answering) Write(cmd []byte) error         { return f.Doorbell(cmd, false) }

// unassignedMethod is a method id that no object has.
const unassignedMethod = 0x0fff

// Probe reports whether the device has this driver. If so, later commands are addressed to
// the driver. Probe calls a method that doesn't exist, which has no effect. The kernel
// compares the driver's number first: it returns EINVAL for another driver, and
// EPROTONOSUPPORT for this one.
func (f *File) Probe(driver uapi.RdmaDriverId) (bool, error) {
	c := begin(uapi.UVERBS_OBJECT_DEVICE, unassignedMethod)
	defer c.Release()
	probe := File{fd: f.fd, driver: uint32(driver), other: f.other}
	switch err := c.send(&probe); {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		f.driver = uint32(driver)
		return true, nil
	case errors.Is(err, unix.EINVAL):
		return false, nil
	default:
		return false, err
	}
}

// FD returns the file descriptor, or -1 without one.
func (f *File) FD() int { return f.fd }

// Dup duplicates the file descriptor.
func (f *File) Dup() (int, error) {
	if f.fd < 0 {
		return 0, unix.EOPNOTSUPP
	}
	return unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
}

// IsNode reports whether the file is an open file of the device node at path.
func (f *File) IsNode(path string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(f.fd, &a); err != nil {
		return false, err
	}
	if err := unix.Stat(path, &b); err != nil {
		return false, err
	}
	return a.Mode&unix.S_IFMT == unix.S_IFCHR && b.Mode&unix.S_IFMT == unix.S_IFCHR && a.Rdev == b.Rdev, nil
}

// Close closes the device. The kernel then releases all objects created through it.
func (f *File) Close() error {
	if f.other != nil {
		return f.other.Close()
	}
	return unix.Close(f.fd)
}
