//go:build amd64 || arm64

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Nothing here is cached but a thread's process: names, descriptors and
// devices change while a program runs, and control verbs are rare.

// threadGroup returns the process that a thread belongs to.
func threadGroup(tid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
				return pid
			}
		}
	}
	return tid
}

// threadName returns the name that a thread goes by.
func threadName(tid int) string {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(comm), "\n")
}

// device returns the RDMA device behind a descriptor of a thread, "" if it is
// none. It goes by the device number: a container may have the node elsewhere.
func device(tid int, fd int) string {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, fd), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/sys/dev/char/%d:%d/ibdev", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// fdPath returns what a descriptor is, for those that are no RDMA device.
func fdPath(tid int, fd int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, fd))
	if err != nil {
		return "?"
	}
	return path
}
