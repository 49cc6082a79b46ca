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

// Identify says what RDMA file a descriptor is; its kind is fileOther if it is
// none. It goes by the device number: a container may have the node elsewhere.
func Identify(tid, fd int) File {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, fd), &st); err != nil {
		return File{}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		// Events come from files without a name of their own.
		switch path := ptrace.FDPath(tid, fd); path {
		case "anon_inode:[infinibandevent]", "anon_inode:[uverbs_event]":
			return File{Kind: FileEvents}
		case "anon_inode:[devx_async_cmd]", "anon_inode:[devx_async_event]":
			return File{Kind: FileDevx, Name: strings.Trim(strings.TrimPrefix(path, "anon_inode:"), "[]")}
		}
		return File{}
	}
	dir := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if name, err := os.ReadFile(dir + "/ibdev"); err == nil {
		device := string(bytes.TrimSpace(name))
		return File{Kind: FileUverbs, Device: device, Driver: driverOf(device)}
	}
	if target, err := os.Readlink(dir); err == nil && filepath.Base(target) == "rdma_cm" {
		return File{Kind: FileCM}
	}
	return File{}
}

// driverOf returns which driver an RDMA device has, as far as its place in the
// system tells. A command by ioctl says it itself.
func driverOf(device string) uapi.RdmaDriverId {
	dir := "/sys/class/infiniband/" + device
	if target, err := os.Readlink(dir + "/device/driver"); err == nil {
		if filepath.Base(target) == "mlx5_core" || strings.HasPrefix(filepath.Base(target), "mlx5_ib") {
			return uapi.RDMA_DRIVER_MLX5
		}
		return uapi.RDMA_DRIVER_UNKNOWN
	}
	// Of the drivers in software only rxe names its network device there.
	if _, err := os.Stat(dir + "/parent"); err == nil {
		return uapi.RDMA_DRIVER_RXE
	}
	return uapi.RDMA_DRIVER_UNKNOWN
}

// A FileKind is what an open file is, as far as RDMA goes.
type FileKind uint8

const (
	FileOther   FileKind = iota
	FileUverbs           // /dev/infiniband/uverbsN
	FileCM               // /dev/infiniband/rdma_cm
	FileChannel          // completion channel
	FileAsync            // asynchronous events
	FileEvents           // one of the two
	FileDevx             // mlx5's own events
)

// A File is an open file: several descriptors, in several processes, may lead
// to it. Objects belong to it.
type File struct {
	ID     int // counts the files of a run
	Kind   FileKind
	Name   string // of fileDevx
	Device string // "rxe0"
	Driver uapi.RdmaDriverId
	before bool // was open before ibvtrace came
	Legacy bool // gets commands by write(2)

	Parent  *File // of the events: the uverbs file
	Objects map[ObjectKey]*object
	Offsets map[uint64]string // what is there to be mapped
	users   int               // descriptors
}

// NewFile makes known a file that a descriptor of the process leads to.
func (t *Set) NewFile(p *Process, fd int, f File) *File {
	t.files++
	f.ID = t.files
	f.Objects = make(map[ObjectKey]*object)
	p.SetFD(fd, &f)
	return &f
}

// File returns the file behind a descriptor, nil if it has nothing to do with RDMA.
// One that is not known yet was opened before ibvtrace came or by another way.
func (t *Set) File(th *Thread, fd int) *File {
	if f := th.Proc.FDs[fd]; f != nil {
		return f
	}
	f := Identify(th.TID, fd)
	if f.Kind == FileOther {
		return nil
	}
	f.before = true
	if f.Kind == FileEvents {
		f.Parent = th.Proc.OnlyUverbs()
	}
	return t.NewFile(th.Proc, fd, f)
}
