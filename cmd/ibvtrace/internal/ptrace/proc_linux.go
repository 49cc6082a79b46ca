//go:build amd64 || arm64

package ptrace

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcessOf returns the process of a thread, whether it is in a nested PID namespace, and the
// number of the thread's seccomp filters.
func ProcessOf(tid int) (pid int, nested bool, filters int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid, false, 0
	}
	pid = tid
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ = strconv.Atoi(strings.TrimSpace(v))
		}
		if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
			nested = len(strings.Fields(v)) > 1
		}
	}
	return pid, nested, StatusNumber(string(status), "Seccomp_filters:")
}

// ThreadName returns a thread's name.
func ThreadName(tid int) string {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(comm), "\n")
}

// FDPath returns the target of a descriptor, from /proc/TID/fd.
func FDPath(tid, fd int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, fd))
	if err != nil {
		return "?"
	}
	return path
}

// EffectiveIDs returns the effective user and group ID from the text of /proc/TID/status.
func EffectiveIDs(status string) (uid, gid uint32) {
	for line := range strings.Lines(status) {
		f := strings.Fields(line) // the real ID, the effective ID, ...
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

// StatusNumber returns a number from the text of /proc/TID/status, or 0 if it is missing.
func StatusNumber(status, name string) int {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// SameFile reports whether a descriptor of one process and one of another refer to the same open
// file.
func SameFile(pid, fd, other, otherFD int) (bool, error) {
	const kcmpFile = 0
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(other), kcmpFile, uintptr(fd), uintptr(otherFD), 0)
	if errno != 0 {
		return false, errno
	}
	return r == 0, nil
}

// ThreadsOf lists the threads of a process.
func ThreadsOf(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out, nil
}

// TracedBy lists the processes that a thread of ibvtrace traces.
func TracedBy(tracer int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if by, err := TracerOf(pid); err == nil && by == tracer {
			out = append(out, pid)
		}
	}
	return out
}

// TracerOf returns the thread that traces a thread, or 0.
func TracerOf(tid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	return StatusNumber(string(status), "TracerPid:"), err
}
