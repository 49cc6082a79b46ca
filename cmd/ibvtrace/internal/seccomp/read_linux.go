//go:build amd64 || arm64

package seccomp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
)

// maxInstructions is the kernel's BPF_MAXINSNS.
const maxInstructions = 4096

// Read reads a struct sock_fprog and the filter that it points at. It returns nil if they
// can't be read.
func Read(tid int, addr uint64, wide bool) Program {
	var b [16]byte
	head := b[:8]
	if wide {
		head = b[:]
	}
	if ptrace.ReadMemory(tid, addr, head) != nil {
		return nil
	}
	at := uint64(binary.NativeEndian.Uint32(b[4:]))
	if wide {
		at = binary.NativeEndian.Uint64(b[8:])
	}
	n := binary.NativeEndian.Uint16(b[:])
	if n == 0 || n > maxInstructions {
		return nil
	}
	code := make([]byte, 8*int(n))
	if ptrace.ReadMemory(tid, at, code) != nil {
		return nil
	}
	p := make(Program, n)
	for i := range p {
		c := code[8*i:]
		p[i] = unix.SockFilter{Code: binary.NativeEndian.Uint16(c), Jt: c[2], Jf: c[3], K: binary.NativeEndian.Uint32(c[4:])}
	}
	return p
}

// Installed returns the filters of a stopped thread.
func Installed(tid int) ([]*Program, error) {
	var all []*Program
	for {
		index := uintptr(len(all))
		get := func(to unsafe.Pointer) (uintptr, unix.Errno) {
			n, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), index, uintptr(to), 0, 0)
			return n, errno
		}
		n, errno := get(nil)
		if errno == unix.ENOENT {
			return all, nil
		}
		if errno != 0 {
			return nil, errno
		}
		// The length is still right: filters do not change.
		p := make(Program, n)
		if _, errno := get(unsafe.Pointer(unsafe.SliceData(p))); errno != 0 {
			return nil, errno
		}
		all = append(all, &p)
	}
}
