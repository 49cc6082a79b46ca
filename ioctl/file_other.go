//go:build !linux

package ioctl

import (
	"errors"
	"runtime"

	"github.com/goverbs/goverbs/uapi"
)

// A File is an open uverbs device, which only Linux has.
type File struct{ driver uint32 }

var errNotLinux = errors.New("ioctl: RDMA verbs are not supported on " + runtime.GOOS)

// Open fails: only Linux has uverbs devices.
func Open(string) (*File, error) { return nil, errNotLinux }

// NewFile returns a File whose methods all fail.
func NewFile(int) *File { return new(File) }

// Probe fails.
func (f *File) Probe(uapi.RdmaDriverId) (bool, error) { return false, errNotLinux }

// FD returns -1.
func (f *File) FD() int { return -1 }

// Dup fails.
func (f *File) Dup() (int, error) { return 0, errNotLinux }

// IsNode fails.
func (f *File) IsNode(path string) (bool, error) { return false, errNotLinux }

// Mmap fails.
func (f *File) Mmap(offset uint64, size int) ([]byte, error) { return nil, errNotLinux }

// MmapReadOnly fails.
func (f *File) MmapReadOnly(offset uint64, size int) ([]byte, error) { return nil, errNotLinux }

// MapMemory fails.
func MapMemory(n int) ([]byte, error) { return nil, errNotLinux }

// Doorbell fails.
func (f *File) Doorbell([]byte, bool) error { return errNotLinux }

// Munmap fails.
func Munmap([]byte) error { return errNotLinux }

// Close does nothing.
func (f *File) Close() error { return nil }

// Run checks the command against the schema, and fails.
func (c *Cmd) Run(f *File) error {
	if err := c.check(f.driver); err != nil {
		return err
	}
	return errNotLinux
}
