// Package fakedev runs a program with a fake RDMA device, whose uverbs calls it passes to a
// Device instead of the kernel. The program may use stock libibverbs, package verbs, or both.
// The memory of the device, which a program maps, is that of a file, so that it can be
// examined.
//
// The package receives the system calls that concern the device through seccomp's user
// notification. It needs Linux 5.19, but no privileges. Programs call Starter first, and then
// Run.
package fakedev

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A Device answers the ioctls on its file.
type Device interface {
	// Files are the files in /sys with which programs find the device, by their paths without
	// "/sys/class/".
	Files() map[string]string
	// Ioctl answers an ioctl. An error that isn't an errno is logged.
	Ioctl(c *Call) error
}

// node is a character device whose number the fake nodes have.
const node = "/dev/zero"

// plant creates the files with which programs find the device.
func plant(root string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(root, "sys/class", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	dev := filepath.Join(root, "dev/infiniband")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		return err
	}
	return os.Symlink(node, filepath.Join(dev, "uverbs0"))
}

// Run runs a program with the device, and returns its exit status.
func Run(dev Device, argv []string) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return 0, err
	}
	root, err := os.MkdirTemp("", "fakedev")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(root)
	if err := plant(root, dev.Files()); err != nil {
		return 0, err
	}
	return run(root, dev, append([]string{path}, argv...))
}

// run is like Run, for a program whose path is argv[0], with the files in root.
func run(root string, dev Device, argv []string) (int, error) {
	cmd, listener, err := start(argv)
	if err != nil {
		return 0, err
	}
	s := &supervisor{listener: listener, root: root, dev: dev}
	done := make(chan error, 1)
	go func() { done <- s.serve() }()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if err := <-done; err != nil {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, fmt.Errorf("%s: %v", argv[0], cmd.ProcessState)
}

// A Call is an ioctl.
type Call struct {
	Number  uint
	Arg     uint64
	Process Process

	s *supervisor
	n *notification
}

// A Request is a command of uverbs.
type Request struct {
	*ioctl.Call
	of    *Call
	attrs uint64 // their address
}

// Request decodes the call as a command.
func (c *Call) Request() (*Request, error) {
	if c.Number != uapi.RDMA_VERBS_IOCTL {
		return nil, unix.ENOTTY
	}
	call, err := ioctl.Decode(c.Arg, c.Process.Read)
	if err != nil {
		return nil, err
	}
	return &Request{call, c, c.Arg + uapi.IbUverbsIoctlHdrAttrsOffset}, nil
}

// Attr returns the number of an attribute in the call, -1 if it isn't there.
func (r *Request) Attr(id uint16) int {
	for i := range r.Attrs {
		if r.Attrs[i].Raw.AttrId == id {
			return i
		}
	}
	return -1
}

// InBytes copies an input attribute, padded with zeros.
func (r *Request) InBytes(id uint16, b []byte) error {
	i := r.Attr(id)
	if i < 0 {
		return nil
	}
	raw := &r.Attrs[i].Raw
	n := min(len(b), int(raw.Len))
	if raw.Len <= 8 {
		copy(b[:n], U64(raw.Data))
		return nil
	}
	return r.of.Process.Read(raw.Data, b[:n])
}

// In returns an input attribute, padded with zeros.
func In[T any](r *Request, id uint16) (v T, err error) {
	err = r.InBytes(id, Bytes(&v))
	return v, err
}

// Out writes an output attribute, truncated to the program's buffer.
func (r *Request) Out(id uint16, b []byte) error {
	i := r.Attr(id)
	if i < 0 {
		return nil
	}
	raw := &r.Attrs[i].Raw
	if err := r.of.Process.Write(raw.Data, b[:min(len(b), int(raw.Len))]); err != nil {
		return err
	}
	var flags [2]byte
	flags[0] = byte(raw.Flags | uapi.UVERBS_ATTR_F_VALID_OUTPUT)
	flags[1] = byte((raw.Flags | uapi.UVERBS_ATTR_F_VALID_OUTPUT) >> 8)
	return r.of.Process.Write(r.attrs+uint64(i)*16+4, flags[:])
}

// Object returns a new handle to the program.
func (r *Request) Object(id uint16, handle uint32) error {
	i := r.Attr(id)
	if i < 0 {
		return unix.EINVAL
	}
	return r.of.Process.Write(r.attrs+uint64(i)*16+8, U64(uint64(handle)))
}

// File returns a new file descriptor, without any events, to the program.
func (r *Request) File(id uint16) error {
	fd, err := r.EventFile()
	if err != nil {
		return err
	}
	return r.Object(id, fd)
}

// EventFile makes a file without any events in the program, and returns its descriptor there.
func (r *Request) EventFile() (uint32, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	theirs, err := r.of.s.give(r.of.n, fd)
	return uint32(theirs), err
}

// OutZero answers the destruction of an object that never reported events.
func (r *Request) OutZero() error {
	for _, a := range r.Attrs {
		if a.Spec != nil && a.Spec.Kind == uapi.AttrPtrOut {
			if err := r.Out(a.Raw.AttrId, make([]byte, a.Raw.Len)); err != nil {
				return err
			}
		}
	}
	return nil
}
