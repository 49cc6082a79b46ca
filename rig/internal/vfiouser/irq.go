//go:build linux

package vfiouser

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Interrupts has a device's MSI-X vectors, each an eventfd of the client. It is safe for
// concurrent use.
type Interrupts struct {
	mu  sync.Mutex
	fds []int
}

// Raise signals a vector. The signal is lost if the client hasn't set an eventfd.
func (v *Interrupts) Raise(vector int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if vector >= 0 && vector < len(v.fds) && v.fds[vector] >= 0 {
		one := [8]byte{1}
		// Writing fails only if the eventfd is full, in which case it is signaled.
		_, _ = unix.Write(v.fds[vector], one[:])
	}
}

// set sets the eventfds of count vectors from start on, and disables vectors without one.
// It owns the fds from then on.
func (v *Interrupts) set(start, count int, fds []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range count {
		fd := -1
		if i < len(fds) {
			fd = fds[i]
		}
		if start+i >= len(v.fds) {
			if fd >= 0 {
				unix.Close(fd)
			}
			continue
		}
		if old := v.fds[start+i]; old >= 0 {
			unix.Close(old)
		}
		v.fds[start+i] = fd
	}
}
