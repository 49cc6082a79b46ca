// Package kernel is the seam between the library and the kernel. A test can replace the
// machine's kernel here, as package verbstest does.
package kernel

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Kernel replaces the machine's kernel. Its methods may be called concurrently.
type Kernel interface {
	// Root returns the directory with the kernel's sys and dev.
	Root() string

	// OpenVerbs opens the node of a device.
	OpenVerbs(node string) (File, error)

	// OpenCM opens the node of the connection manager. WriteCM passes a command to the node with
	// the descriptor fd. The node is readable while GET_EVENT has an event to return; otherwise
	// GET_EVENT returns EAGAIN.
	OpenCM(node string) (*os.File, error)
	WriteCM(fd uintptr, command []byte) error
}

// A File is an open node of a device.
type File interface {
	Ioctl(cmd uint64) syscall.Errno               // RDMA_VERBS_IOCTL; cmd is the argument
	Write(cmd []byte) error                       // a command of the write ABI
	Mmap(offset uint64, size int) ([]byte, error) // the caller unmaps the memory
	Close() error
}

var current atomic.Pointer[Kernel]

// Current returns the kernel that replaces the machine's, or nil.
func Current() Kernel {
	if k := current.Load(); k != nil {
		return *k
	}
	return nil
}

// Replace replaces the machine's kernel with k until restore is called. ok is false if the
// kernel is already replaced.
func Replace(k Kernel) (restore func(), ok bool) {
	if !current.CompareAndSwap(nil, &k) {
		return nil, false
	}
	return func() { current.Store(nil) }, true
}

var answers sync.Map // from descriptors to functions

// Answering makes the next file of ioctl.NewFile for fd answer ioctls with a function. It returns
// fd.
func Answering(fd int, answer func(cmd uint64) syscall.Errno) int {
	answers.Store(fd, answer)
	return fd
}

// Answer returns the function for a descriptor and forgets it, or returns nil.
func Answer(fd int) func(cmd uint64) syscall.Errno {
	answer, _ := answers.LoadAndDelete(fd)
	f, _ := answer.(func(cmd uint64) syscall.Errno)
	return f
}
