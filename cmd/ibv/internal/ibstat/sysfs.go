// Package ibstat prints the state of devices and ports as infiniband-diags' ibstat and
// ibstatus do.
package ibstat

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Class is the folder of the RDMA devices.
type Class string

// System is the kernel's Class.
const System Class = "/sys/class/infiniband"

var errNoDevices = errors.New("no RDMA devices: the kernel has no driver for one loaded")

// devices returns the names of all devices.
func (c Class) devices() ([]string, error) {
	entries, err := os.ReadDir(string(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoDevices
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// device returns a device's folder, if the device exists.
func (c Class) device(name string) (folder, error) {
	f := folder(filepath.Join(string(c), name))
	if name == "" || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("%q is not a device's name", name)
	}
	if _, err := os.Stat(filepath.Join(string(f), "ports")); err != nil {
		return "", fmt.Errorf("there is no device %s", name)
	}
	return f, nil
}

// A folder has a device's or a port's attributes.
type folder string

// text returns an attribute, or "" if it doesn't exist.
func (f folder) text(name string) string {
	b, _ := os.ReadFile(filepath.Join(string(f), name))
	return strings.TrimRight(string(b), "\n")
}

// number returns the number that an attribute begins with, or 0.
func (f folder) number(name string) uint64 {
	field := f.text(name)
	if end := strings.IndexAny(field, " :."); end >= 0 {
		field = field[:end]
	}
	v, _ := strconv.ParseUint(field, 0, 64)
	return v
}

// guid returns an attribute without colons, with 16 digits or more.
func (f folder) guid(name string) string {
	digits := strings.ReplaceAll(f.text(name), ":", "")
	return strings.Repeat("0", max(0, 16-len(digits))) + digits
}

// ports returns the numbers of a device's ports.
func (f folder) ports() ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(string(f), "ports"))
	if err != nil {
		return nil, err
	}
	var ports []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			ports = append(ports, n)
		}
	}
	slices.Sort(ports)
	return ports, nil
}

// port returns a port's folder.
func (f folder) port(n int) (folder, error) {
	p := folder(filepath.Join(string(f), "ports", strconv.Itoa(n)))
	if _, err := os.Stat(string(p)); err != nil {
		return "", fmt.Errorf("%s has no port %d", filepath.Base(string(f)), n)
	}
	return p, nil
}
