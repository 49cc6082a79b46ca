//go:build amd64 || arm64

package trace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// processOf returns the process that a thread belongs to, that one's parent, whether it
// is in a namespace of its own, where ids are other ones, and how many seccomp filters
// the thread has.
func processOf(tid int) (pid, parent int, nested bool, filters int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid, 0, false, 0
	}
	pid = tid
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ = strconv.Atoi(strings.TrimSpace(v))
		}
		if v, ok := strings.CutPrefix(line, "PPid:"); ok {
			parent, _ = strconv.Atoi(strings.TrimSpace(v))
		}
		if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
			nested = len(strings.Fields(v)) > 1
		}
	}
	return pid, parent, nested, statusNumber(string(status), "Seccomp_filters:")
}

// threadName returns the name that a thread goes by.
func threadName(tid int) string {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(comm), "\n")
}

// fdPath returns what a descriptor is.
func fdPath(tid, fd int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, fd))
	if err != nil {
		return "?"
	}
	return path
}

// identify says what RDMA file a descriptor is; its kind is fileOther if it is
// none. It goes by the device number: a container may have the node elsewhere.
func identify(tid, fd int) file {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, fd), &st); err != nil {
		return file{}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		// Events come from files without a name of their own.
		switch path := fdPath(tid, fd); path {
		case "anon_inode:[infinibandevent]", "anon_inode:[uverbs_event]":
			return file{kind: fileEvents}
		case "anon_inode:[devx_async_cmd]", "anon_inode:[devx_async_event]":
			return file{kind: fileDevx, name: strings.Trim(strings.TrimPrefix(path, "anon_inode:"), "[]")}
		}
		return file{}
	}
	dir := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if name, err := os.ReadFile(dir + "/ibdev"); err == nil {
		device := string(bytes.TrimSpace(name))
		return file{kind: fileUverbs, device: device, driver: driverOf(device)}
	}
	if target, err := os.Readlink(dir); err == nil && filepath.Base(target) == "rdma_cm" {
		return file{kind: fileCM}
	}
	return file{}
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

// A mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end uint64
	read       bool
	write      bool
	exec       bool
	private    bool
	path       string
}

// maxMappings bounds what is read of them: a program may have 65530 by default.
const maxMappings = 1 << 17

func mappings(tid int) ([]mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", tid))
	if err != nil {
		return nil, err
	}
	var out []mapping
	for line := range strings.Lines(string(b)) {
		var m mapping
		f := strings.Fields(line)
		if len(f) < 5 || len(f[1]) != 4 {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		if m.start, err = strconv.ParseUint(from, 16, 64); err != nil {
			continue
		}
		if m.end, err = strconv.ParseUint(to, 16, 64); err != nil {
			continue
		}
		m.read, m.write, m.exec, m.private = f[1][0] == 'r', f[1][1] == 'w', f[1][2] == 'x', f[1][3] == 'p'
		if len(f) > 5 {
			m.path = f[5]
		}
		if out = append(out, m); len(out) == maxMappings {
			break
		}
	}
	return out, nil
}

// effectiveIDs returns as which user and group the thread acts of which this is
// /proc/TID/status.
func effectiveIDs(status string) (uid, gid uint32) {
	for line := range strings.Lines(status) {
		f := strings.Fields(line) // of each: the real one, the effective one
		if len(f) < 3 || f[0] != "Uid:" && f[0] != "Gid:" {
			continue
		}
		id, _ := strconv.ParseUint(f[2], 10, 32)
		if f[0] == "Uid:" {
			uid = uint32(id)
		} else {
			gid = uint32(id)
		}
	}
	return uid, gid
}

// tracerPid returns who traces the thread of which this is /proc/TID/status. It is
// the id of a thread.
func tracerPid(status string) int {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(v))
			return pid
		}
	}
	return 0
}
