//go:build linux

package vfiouser

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Interrupts are a device's MSI-X vectors, each an eventfd of the client. They
// may be used by any goroutine.
type Interrupts struct {
	mu  sync.Mutex
	fds []int
}

// Raise signals a vector; one that the client does not listen to is lost.
func (v *Interrupts) Raise(vector int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if vector >= 0 && vector < len(v.fds) && v.fds[vector] >= 0 {
		one := [8]byte{1}
		// An eventfd refuses only when it is full, and then it is signaled.
		_, _ = unix.Write(v.fds[vector], one[:])
	}
}

// set makes fds the vectors from start on, and vectors without one deaf. It
// takes the fds over.
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
