//go:build amd64 || arm64

package bpf

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structs that are passed to bpf(2) are beginnings of union bpf_attr. Where that has an
// address in 64 bits, they have a pointer, so that Go keeps what it points to, and corrects the
// pointer if a stack moves. The kernel uses them during the call only.

// call calls bpf(2).
func call(command int, attr unsafe.Pointer, size uintptr) (int, error) {
	for {
		r, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
		switch errno {
		case 0:
			return int(r), nil
		case unix.EINTR, unix.EAGAIN: // the verifier was interrupted by a signal
		default:
			return -1, errno
		}
	}
}

// Types of maps.
const (
	PerCPUArray = unix.BPF_MAP_TYPE_PERCPU_ARRAY
	array       = unix.BPF_MAP_TYPE_ARRAY
	ring        = unix.BPF_MAP_TYPE_RINGBUF
)

// A Map is a map in the kernel that programs and this process share.
type Map struct{ fd int }

// NewMap makes a map.
func NewMap(kind, keySize, valueSize, entries int) (*Map, error) {
	return newMap(kind, keySize, valueSize, entries, 0)
}

func newMap(kind, keySize, valueSize, entries int, flags uint32) (*Map, error) {
	attr := struct{ kind, keySize, valueSize, entries, flags uint32 }{
		uint32(kind), uint32(keySize), uint32(valueSize), uint32(entries), flags,
	}
	fd, err := call(unix.BPF_MAP_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, fmt.Errorf("bpf: create a map of type %d: %w", kind, err)
	}
	return &Map{fd}, nil
}

// FD returns the map's descriptor, for [Asm.Map].
func (m *Map) FD() int { return m.fd }

// Close drops this process's reference to the map.
func (m *Map) Close() error { return os.NewSyscallError("close", unix.Close(m.fd)) }

// A Memory is a map whose only value is memory that this process has mapped. It needs no system calls:
// kprobes don't run their programs on a processor where a system call has been preempted in the middle
// of looking into a map.
type Memory struct {
	*Map
	Bytes []byte
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE

// NewMemory makes a Memory of n bytes.
func NewMemory(n int) (*Memory, error) {
	m, err := newMap(array, 4, n, 1, mmapable)
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(m.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("bpf: map %d bytes: %w", n, err)
	}
	return &Memory{m, b}, nil
}

// Count returns the number in the first 8 bytes.
func (m *Memory) Count() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&m.Bytes[0]))) // aligned, as the page is
}

// Close unmaps the memory and closes the map. No other method may be running.
func (m *Memory) Close() error {
	unix.Munmap(m.Bytes)
	return m.Map.Close()
}
