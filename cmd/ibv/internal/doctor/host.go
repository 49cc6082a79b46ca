package doctor

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Host is the checks' source of facts: files below a root directory, and a System for facts that are
// not in files.
type Host struct {
	Root string
	System
}

// A System provides facts that are not in files.
type System interface {
	// Node examines a device node.
	Node(path string) Node
	// Query opens a device and queries its ports.
	Query(device string) (Answer, error)
	// Addrs returns the IP addresses of a network interface.
	Addrs(netDev string) []netip.Prefix
	// Stats returns the driver's counters of a network interface.
	Stats(netDev string) map[string]uint64
	// Speeds returns the speed of an Ethernet link, and the highest that both ends
	// offer, in Mb/s. 0 means unknown.
	Speeds(netDev string) (active, both int)
	// VLAN returns the number of the VLAN of a network interface, 0 for none.
	VLAN(netDev string) int
}

// A Node is the state of a device node.
type Node struct {
	Missing error  // why the node can't be examined, usually because it doesn't exist
	Mode    string // as ls prints it
	Owner   string
	Dev     string // major and minor number, as in sysfs; "" if it is not a device
	Open    error  // why it can't be opened for reading and writing
}

// An Answer is the kernel's answer about an opened device.
type Answer struct {
	Ports []PortAnswer // from port 1
	ODP   bool         // the device supports on-demand paging
}

// A PortAnswer is the kernel's answer about a port of an opened device.
type PortAnswer struct {
	ActiveMTU, MaxMTU int // bytes
}

// path returns the real path of a file.
func (h *Host) path(path string) string { return filepath.Join(h.Root, path) }

// read returns a file's text without surrounding space, or "" if it can't be read.
func (h *Host) read(path string) string {
	b, _ := os.ReadFile(h.path(path))
	return strings.TrimSpace(string(b))
}

// number returns the number in a file.
func (h *Host) number(path string) (int, bool) {
	n, err := strconv.Atoi(h.read(path))
	return n, err == nil
}

// has reports whether the file exists.
func (h *Host) has(path string) bool {
	_, err := os.Stat(h.path(path))
	return err == nil
}

// list returns the names in a directory.
func (h *Host) list(path string) []string {
	entries, _ := os.ReadDir(h.path(path))
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// target returns the last part of the path that a symbolic link leads to, or "".
func (h *Host) target(path string) string {
	to, err := os.Readlink(h.path(path))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// field returns the value of a line "NAME: VALUE" of a file.
func (h *Host) field(path, name string) string {
	for line := range strings.Lines(h.read(path)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kernel returns the kernel's version.
func (h *Host) kernel() (major, minor int) {
	parts := strings.SplitN(h.read("/proc/sys/kernel/osrelease"), ".", 3)
	if len(parts) > 1 {
		major, _ = strconv.Atoi(parts[0])
		digits := strings.TrimRight(parts[1], "abcdefghijklmnopqrstuvwxyz-+")
		minor, _ = strconv.Atoi(digits)
	}
	return major, minor
}

// kernelBefore reports whether the kernel's version is known, and older.
func (h *Host) kernelBefore(major, minor int) bool {
	a, b := h.kernel()
	return a != 0 && (a < major || a == major && b < minor)
}

// container returns the program that runs the container, or "" outside a container.
func (h *Host) container() string {
	switch {
	case h.read("/proc/2/comm") == "kthreadd":
		return "" // the host's processes are visible: the image may be a container's
	case h.has("/.dockerenv"):
		return "docker"
	case h.has("/run/.containerenv"):
		return "podman"
	case h.has("/run/secrets/kubernetes.io"), strings.Contains(h.read("/proc/self/cgroup"), "kubepods"):
		return "kubernetes"
	}
	return h.read("/run/systemd/container")
}

// runner returns the command that runs a container with an option.
func (h *Host) runner() string {
	if c := h.container(); c == "podman" {
		return c
	}
	return "docker"
}

func join(names []string) string { return strings.Join(names, ", ") }
