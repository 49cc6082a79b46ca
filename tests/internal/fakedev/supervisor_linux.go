package fakedev

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A supervisor answers the program's system calls.
type supervisor struct {
	listener int
	root     string
	dev      Device
	nextFD   int
}

// A notification is struct seccomp_notif, <linux/seccomp.h>.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// A response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// An addFD is struct seccomp_notif_addfd.
type addFD struct {
	id         uint64
	flags      uint32
	srcFD      uint32
	newFD      uint32
	newFDFlags uint32
}

const flagContinue = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE

// Every argument is a local variable that lives through the call. A call that a signal
// interrupts has done nothing, and is repeated. SECCOMP_ADDFD_FLAG_SEND, which adds a
// descriptor and responds with it, must not be used: if interrupted, it has responded with
// 0 but not added the descriptor.
func (s *supervisor) ioctl(request uint, arg unsafe.Pointer) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), uintptr(request), uintptr(arg))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return int(n), errno
		}
	}
}

// serve answers calls until no filtered process is left.
func (s *supervisor) serve() error {
	defer unix.Close(s.listener)
	s.nextFD = firstFD
	for {
		poll := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
		switch _, err := unix.Poll(poll, -1); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("poll", err)
		case poll[0].Revents&unix.POLLIN == 0:
			return nil // POLLHUP
		}
		var n notification
		if _, err := s.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue // the caller was killed
			}
			return os.NewSyscallError("SECCOMP_IOCTL_NOTIF_RECV", err)
		}
		r := response{id: n.id, flags: flagContinue}
		s.answer(&n, &r)
		if _, err := s.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)); err != nil && !errors.Is(err, unix.ENOENT) {
			return os.NewSyscallError("SECCOMP_IOCTL_NOTIF_SEND", err)
		}
	}
}

// answer fills the response.
func (s *supervisor) answer(n *notification, r *response) {
	p := Process{int(n.pid)}
	switch n.nr {
	case unix.SYS_IOCTL:
		r.flags = 0
		if err := s.dev.Ioctl(&Call{Number: uint(n.args[1]), Arg: n.args[2], Process: p, s: s, n: n}); err != nil {
			r.errno = -int32(errnoOf(err))
		}
	case unix.SYS_OPENAT:
		if path, ok := s.ours(p, n.args[1]); ok {
			fd, err := s.open(n, path)
			r.flags, r.val = 0, int64(fd)
			if err != nil {
				r.val, r.errno = 0, -int32(errnoOf(err))
			}
		}
	case unix.SYS_FSTAT: // glibc has used it since 2.39
		r.flags = 0
		if err := stat(p, node, n.args[1], 0); err != nil {
			r.errno = -int32(errnoOf(err))
		}
	case sysFstatat:
		path, ok := s.ours(p, n.args[1])
		if n.args[0] >= firstFD && n.args[0] < 1<<31 { // fstat; AT_FDCWD is negative
			path, ok = node, true
		}
		if ok {
			r.flags = 0
			if err := stat(p, path, n.args[2], n.args[3]); err != nil {
				r.errno = -int32(errnoOf(err))
			}
		}
	}
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	log.Print(err)
	return unix.EIO
}

// ours reports whether the path at addr is one of the device's, and returns the real path.
func (s *supervisor) ours(p Process, addr uint64) (string, bool) {
	var b [256]byte
	// The path may end at a page's end.
	n := min(len(b), int(4096-addr%4096))
	if p.Read(addr, b[:n]) != nil || n < len(b) && bytes.IndexByte(b[:n], 0) < 0 && p.Read(addr+uint64(n), b[n:]) != nil {
		return "", false
	}
	end := bytes.IndexByte(b[:], 0)
	if end < 0 {
		return "", false
	}
	path := filepath.Clean(string(b[:end]))
	if strings.HasPrefix(path, "/sys/class/infiniband") || strings.HasPrefix(path, "/dev/infiniband") {
		return filepath.Join(s.root, path), true
	}
	return "", false
}

// open adds a descriptor of the substitute file to the program. For the node, that is
// memory, which can be mapped at any offset. The answer to stat makes it a character
// device.
func (s *supervisor) open(n *notification, path string) (int, error) {
	a := addFD{id: n.id, newFDFlags: uint32(n.args[2]) & unix.O_CLOEXEC}
	var f int
	var err error
	if filepath.Base(path) == "uverbs0" && strings.Contains(path, "/dev/") {
		a.flags |= unix.SECCOMP_ADDFD_FLAG_SETFD
		a.newFD = uint32(s.nextFD)
		s.nextFD++
		f, err = registers()
	} else {
		f, err = unix.Open(path, int(n.args[2])&(unix.O_ACCMODE|unix.O_DIRECTORY)|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(f)
	a.srcFD = uint32(f)
	return s.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
}

// registers creates the memory that replaces a device's registers.
func registers() (int, error) {
	f, err := unix.MemfdCreate("registers", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	if err := unix.Ftruncate(f, 1<<40); err != nil {
		unix.Close(f)
		return 0, err
	}
	return f, nil
}

// give adds a descriptor to the program and returns its number there.
func (s *supervisor) give(n *notification, fd int) (int, error) {
	a := addFD{id: n.id, srcFD: uint32(fd), newFDFlags: unix.O_CLOEXEC}
	return s.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
}

func stat(p Process, path string, to, flags uint64) error {
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, path, &st, int(flags)&unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return p.Write(to, Bytes(&st))
}

// A Process gives access to a process's memory.
type Process struct{ pid int }

// Read copies memory of the process.
func (p Process) Read(addr uint64, b []byte) error {
	return p.copy(addr, b, unix.ProcessVMReadv)
}

// Write copies to memory of the process.
func (p Process) Write(addr uint64, b []byte) error {
	return p.copy(addr, b, unix.ProcessVMWritev)
}

func (p Process) copy(addr uint64, b []byte, call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := call(p.pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

// Bytes returns the memory of a struct of the ABI, which has no pointers.
func Bytes[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// U32 and U64 return a number's bytes.
func U32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func U64(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
