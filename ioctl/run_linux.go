package ioctl

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// Run checks the command against the schema and runs it. It repeats the call if a signal
// interrupts it. If the kernel refuses the command, the error is a plain unix.Errno.
func (c *Cmd) Run(f *File) error {
	if err := c.check(f.driver); err != nil {
		return err
	}
	return c.send(f)
}

func (c *Cmd) send(f *File) error {
	c.address(f.driver)
	for {
		errno := c.call(f)
		runtime.KeepAlive(c)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

func (c *Cmd) call(f *File) unix.Errno {
	if f.other != nil {
		return f.other.Ioctl(uint64(uintptr(unsafe.Pointer(&c.msg))))
	}
	_, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(f.fd), uapi.RDMA_VERBS_IOCTL, uintptr(unsafe.Pointer(&c.msg)))
	return errno
}
