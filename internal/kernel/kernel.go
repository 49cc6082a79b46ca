// Package kernel is the seam between the library and the kernel. Tests replace the machine's kernel
// there, as package verbstest does.
package kernel

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Kernel stands in for the machine's kernel. Its methods may be called concurrently.
type Kernel interface {
	// Root is the directory that has its sys and dev.
	Root() string

	// OpenVerbs opens the node of a device.
	OpenVerbs(node string) (File, error)

	// OpenCM opens the node of the connection manager, and WriteCM passes it a command, which names
	// the node by its descriptor. The node is readable while GET_EVENT has an event. Otherwise
	// GET_EVENT answers EAGAIN.
	OpenCM(node string) (*os.File, error)
	WriteCM(fd uintptr, command []byte) error
}

// A File is an open node of a device.
type File interface {
	Ioctl(cmd uint64) syscall.Errno               // RDMA_VERBS_IOCTL; cmd is the argument
	Write(cmd []byte) error                       // a command of the write ABI
	Mmap(offset uint64, size int) ([]byte, error) // memory that the caller unmaps
	Close() error
}

var current atomic.Pointer[Kernel]

// Current returns the kernel that stands in for the machine's, or nil.
func Current() Kernel {
	if k := current.Load(); k != nil {
		return *k
	}
	return nil
}

// Replace puts a kernel in the machine's place until restore is called. It reports false if
// there is one already.
func Replace(k Kernel) (restore func(), ok bool) {
	if !current.CompareAndSwap(nil, &k) {
		return nil, false
	}
	return func() { current.Store(nil) }, true
}

var answers sync.Map // from descriptors to functions

// Answering makes the next file that ioctl.NewFile makes of the descriptor answer ioctls by a
// function. It returns the descriptor.
func Answering(fd int, answer func(cmd uint64) syscall.Errno) int {
	answers.Store(fd, answer)
	return fd
}

// Answer returns the function for a descriptor, once, or nil.
func Answer(fd int) func(cmd uint64) syscall.Errno {
	answer, _ := answers.LoadAndDelete(fd)
	f, _ := answer.(func(cmd uint64) syscall.Errno)
	return f
}
