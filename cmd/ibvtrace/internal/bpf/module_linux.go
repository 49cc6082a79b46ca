//go:build amd64 || arm64

package bpf

import (
	"bytes"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Module is the type information of a module, as the kernel has it.
type Module struct{ fd int }

// OpenModule finds the module with a name, which takes CAP_SYS_ADMIN. The error is ENOENT if the kernel
// has no type information of it.
func OpenModule(name string) (*Module, error) {
	m, err := openModule(name)
	if err != nil {
		return nil, fmt.Errorf("bpf: find the type information of %s: %w", name, err)
	}
	return m, nil
}

func openModule(name string) (*Module, error) {
	ids := struct{ id, next, flags uint32 }{}
	for {
		if _, err := call(unix.BPF_BTF_GET_NEXT_ID, unsafe.Pointer(&ids), unsafe.Sizeof(ids)); err != nil {
			return nil, err
		}
		ids.id = ids.next
		one := struct{ id, next, flags uint32 }{id: ids.id}
		fd, err := call(unix.BPF_BTF_GET_FD_BY_ID, unsafe.Pointer(&one), unsafe.Sizeof(one))
		if err == unix.ENOENT {
			continue // it has gone
		}
		if err != nil {
			return nil, err
		}
		is, err := isModule(fd, name)
		if is {
			return &Module{fd}, nil
		}
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
	}
}

// isModule reports whether type information is that of the module with a name.
func isModule(fd int, name string) (bool, error) {
	var of [64]byte
	info := struct {
		_              *byte
		_, id          uint32
		name           *byte
		nameLen, inner uint32
	}{name: &of[0], nameLen: uint32(len(of))}
	attr := struct {
		fd, n uint32
		info  unsafe.Pointer
	}{uint32(fd), uint32(unsafe.Sizeof(info)), unsafe.Pointer(&info)}
	if _, err := call(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil && err != unix.ENOSPC {
		return false, err
	}
	got, _, _ := bytes.Cut(of[:], []byte{0})
	return info.inner != 0 && string(got) == name, nil // not a program's
}

// Close drops this process's reference to the information.
func (m *Module) Close() error { return os.NewSyscallError("close", unix.Close(m.fd)) }
