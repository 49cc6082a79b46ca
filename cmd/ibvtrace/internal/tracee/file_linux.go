//go:build amd64 || arm64

package tracee

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/uapi"
)

// Identify returns the RDMA file that a descriptor refers to. The kind is FileOther if it is
// no RDMA file. Identify looks at the device number, because in a container the node may have
// another path.
func Identify(tid, fd int) File {
	path := ptrace.FDPath(tid, fd)
	switch kind, name, _ := strings.Cut(path, ":"); kind {
	case "socket", "pipe":
		return File{}
	case "anon_inode":
		switch name = strings.Trim(name, "[]"); name {
		case "infinibandevent", "uverbs_event":
			return File{Kind: FileEvents}
		case "devx_async_cmd", "devx_async_event":
			return File{Kind: FileDevx, Name: name}
		}
		return File{}
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, fd), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return File{}
	}
	return DeviceFile(st.Rdev)
}

// DeviceFile returns the RDMA file that opening a character device with a number makes. The kind
// is FileOther if it makes no RDMA file.
func DeviceFile(rdev uint64) File {
	dir := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(rdev), unix.Minor(rdev))
	if name, err := os.ReadFile(dir + "/ibdev"); err == nil {
		device := string(bytes.TrimSpace(name))
		return File{Kind: FileUverbs, Device: device, Driver: driverOf(device)}
	}
	if target, err := os.Readlink(dir); err == nil && filepath.Base(target) == "rdma_cm" {
		return File{Kind: FileCM}
	}
	return File{}
}

// driverOf returns the driver of an RDMA device, as far as sysfs shows it. Commands by ioctl
// name the driver.
func driverOf(device string) uapi.RdmaDriverId {
	dir := "/sys/class/infiniband/" + device
	if target, err := os.Readlink(dir + "/device/driver"); err == nil {
		if filepath.Base(target) == "mlx5_core" || strings.HasPrefix(filepath.Base(target), "mlx5_ib") {
			return uapi.RDMA_DRIVER_MLX5
		}
		return uapi.RDMA_DRIVER_UNKNOWN
	}
	// Of the software drivers, only rxe names its network device in "parent".
	if _, err := os.Stat(dir + "/parent"); err == nil {
		return uapi.RDMA_DRIVER_RXE
	}
	return uapi.RDMA_DRIVER_UNKNOWN
}

// A FileKind is the kind of an RDMA file.
type FileKind uint8

const (
	FileOther   FileKind = iota // no RDMA file
	FileUverbs                  // /dev/infiniband/uverbsN
	FileCM                      // /dev/infiniband/rdma_cm
	FileChannel                 // a completion channel
	FileAsync                   // asynchronous events
	FileEvents                  // FileChannel or FileAsync
	FileDevx                    // events of mlx5's DEVX
)

// A File is an open file. Several descriptors, in several processes, may refer to it. Objects
// belong to a file.
type File struct {
	ID     int // unique in a trace
	Kind   FileKind
	Name   string // of FileDevx
	Device string // "rxe0"
	Driver uapi.RdmaDriverId
	before bool // the file was open before ibvtrace attached
	Legacy bool // the program sends commands by write(2)

	Parent  *File // an event file's uverbs file
	Objects map[ObjectKey]*object
	Offsets map[uint64]string // what can be mapped at an offset
	users   int               // descriptors
}

// NewFile adds a file that a descriptor of the process refers to.
func (t *Set) NewFile(p *Process, fd int, f File) *File {
	t.files++
	f.ID = t.files
	f.Objects = make(map[ObjectKey]*object)
	p.SetFD(fd, &f)
	return &f
}

// File returns the file that a descriptor refers to, or nil if it is no RDMA file. It adds
// files that it does not know: the program opened them before ibvtrace attached, or received
// them from another process.
func (t *Set) File(th *Thread, fd int) *File {
	if f := th.Proc.FDs[fd]; f != nil {
		return f
	}
	f := Identify(th.TID, fd)
	if f.Kind == FileOther {
		return nil
	}
	if known := t.known(th, fd); known != nil {
		th.Proc.SetFD(fd, known)
		return known
	}
	f.before = true
	if f.Kind == FileEvents {
		f.Parent = th.Proc.OnlyUverbs()
	}
	return t.NewFile(th.Proc, fd, f)
}

// known returns the file that a descriptor refers to if another descriptor, of any process,
// refers to it too, and nil otherwise.
func (t *Set) known(th *Thread, fd int) *File {
	compared := make(map[*File]bool)
	for _, p := range t.Processes {
		for other, f := range p.FDs {
			if compared[f] {
				continue
			}
			same, err := ptrace.SameFile(th.TID, fd, p.PID, other)
			if same {
				return f
			}
			compared[f] = err == nil // there is an error if the process has ended
		}
	}
	return nil
}
