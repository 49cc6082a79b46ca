package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A tree has the directories in which devices are looked up.
type tree struct{ sys, dev string }

var system = tree{sys: "/sys", dev: "/dev"}

// devices returns the devices of the kernel's uverbs, in the order of their numbers.
func (t tree) devices() ([]*DeviceInfo, error) {
	entries, err := os.ReadDir(filepath.Join(t.sys, "class/infiniband_verbs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var devs []*DeviceInfo
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), "uverbs")
		if !ok {
			continue
		}
		index, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		if d := t.device(index); d != nil {
			devs = append(devs, d)
		}
	}
	slices.SortFunc(devs, func(a, b *DeviceInfo) int { return a.index - b.index })
	return devs, nil
}

// device reads one device. It returns nil if the device has disappeared.
func (t tree) device(index int) *DeviceInfo {
	uverbs := fmt.Sprintf("uverbs%d", index)
	class := filepath.Join(t.sys, "class/infiniband_verbs", uverbs)
	name, err := readAttr(class, "ibdev")
	if err != nil {
		return nil
	}
	d := &DeviceInfo{
		name:  name,
		index: index,
		node:  filepath.Join(t.dev, "infiniband", uverbs),
		sysfs: filepath.Join(t.sys, "class/infiniband", name),
	}
	// Only the node type and the node GUID exist for every driver.
	d.fwVer, _ = readAttr(d.sysfs, "fw_ver")
	d.hwRev, _ = readAttr(d.sysfs, "hw_rev")
	d.boardID, _ = readAttr(d.sysfs, "board_id")
	d.err = errors.Join(
		readParsed(class, "abi_version", &d.abiVersion, strconv.Atoi),
		readParsed(d.sysfs, "node_type", &d.nodeType, parseNodeType),
		readParsed(d.sysfs, "node_guid", &d.nodeGUID, ParseGUID),
		readParsed(d.sysfs, "sys_image_guid", &d.sysImageGUID, ParseGUID),
		d.checkNode(),
	)
	return d
}

// checkNode returns an error if the device node doesn't exist.
func (d *DeviceInfo) checkNode() error {
	if _, err := os.Stat(d.node); err != nil {
		return openError(d, err)
	}
	return nil
}

// kernelDevices returns the names of the kernel's devices, with or without uverbs.
func (t tree) kernelDevices() []string {
	entries, _ := os.ReadDir(filepath.Join(t.sys, "class/infiniband"))
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func readAttr(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b)), err
}

func readParsed[T any](dir, name string, to *T, parse func(string) (T, error)) error {
	s, err := readAttr(dir, name)
	if err != nil {
		return err
	}
	v, err := parse(s)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	*to = v
	return nil
}

// parseNodeType parses "1: CA".
func parseNodeType(s string) (NodeType, error) {
	number, _, _ := strings.Cut(s, ":")
	n, err := strconv.Atoi(number)
	return NodeType(n), err
}

// netDevs returns the network interfaces of the device's ports: the interface below a
// software device, the interfaces of the same PCI function, and those of its GIDs (such
// as VLANs and bonds).
func (d *DeviceInfo) netDevs() []string {
	var names []string
	if parent, err := readAttr(d.sysfs, "parent"); err == nil {
		names = append(names, parent)
	}
	for _, pattern := range []string{"device/net/*", "ports/*/gid_attrs/ndevs/*"} {
		paths, _ := filepath.Glob(filepath.Join(d.sysfs, pattern))
		for _, path := range paths {
			dir, name := filepath.Split(path)
			if pattern != "device/net/*" {
				// EINVAL: the table has no entry there.
				var err error
				if name, err = readAttr(dir, name); err != nil {
					continue
				}
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// gidNetDev returns the name of a GID's network interface, or "" if it has none.
func (d *DeviceInfo) gidNetDev(port, index int) string {
	name, _ := readAttr(d.sysfs, fmt.Sprintf("ports/%d/gid_attrs/ndevs/%d", port, index))
	return name
}

// pkey returns an entry of a port's P_Key table.
func (d *DeviceInfo) pkey(port, index int) (uint16, error) {
	var pkey uint16
	err := readParsed(d.sysfs, fmt.Sprintf("ports/%d/pkeys/%d", port, index), &pkey, func(s string) (uint16, error) {
		v, err := strconv.ParseUint(s, 0, 16)
		return uint16(v), err
	})
	return pkey, err
}

// guidFromBE converts a field of the kernel, which is in network byte order, to a GUID.
func guidFromBE(v uint64) GUID {
	var g GUID
	binary.NativeEndian.PutUint64(g[:], v)
	return g
}
