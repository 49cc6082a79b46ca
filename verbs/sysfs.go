package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/rdmanl"
)

// A tree is the source of information about devices: directories of sysfs, and netlink. A
// directory's path has the device's name. The name may change, and then belong to another
// device. Netlink has the device's index.
type tree struct {
	sys, dev   string
	findDevice func(context.Context, string) (rdmanl.Device, error)
	getDevice  func(context.Context, uint32) (rdmanl.Device, error)
	links      func(context.Context, uint32) ([]rdmanl.Link, error)
}

// system returns this machine's tree, or that of a test's kernel in this process, which has
// no netlink.
func system() tree {
	if k := kernel.Current(); k != nil {
		return tree{sys: filepath.Join(k.Root(), "sys"), dev: filepath.Join(k.Root(), "dev"),
			findDevice: func(context.Context, string) (rdmanl.Device, error) { return rdmanl.Device{}, ErrNotSupported }}
	}
	return tree{"/sys", "/dev", rdmanl.FindDevice, rdmanl.GetDevice, rdmanl.Links}
}

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
		n, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		if d := t.device(n); d != nil {
			devs = append(devs, d)
		}
	}
	slices.SortFunc(devs, func(a, b *DeviceInfo) int { return a.number - b.number })
	return devs, nil
}

// device reads one device. It returns nil if the device has disappeared.
func (t tree) device(number int) *DeviceInfo {
	uverbs := fmt.Sprintf("uverbs%d", number)
	d := &DeviceInfo{
		tree:   t,
		number: number,
		node:   filepath.Join(t.dev, "infiniband", uverbs),
		class:  filepath.Join(t.sys, "class/infiniband_verbs", uverbs),
	}
	for {
		name, err := readAttr(d.class, "ibdev")
		if err != nil {
			return nil
		}
		d.name = name
		var found rdmanl.Device
		found, d.noIndex = t.findDevice(context.Background(), name)
		d.index, d.indexed = found.Index, d.noIndex == nil
		dir := t.dirOf(name)
		// Only the node type and the node GUID exist for every driver.
		d.fwVer, _ = readAttr(dir, "fw_ver")
		d.hwRev, _ = readAttr(dir, "hw_rev")
		d.boardID, _ = readAttr(dir, "board_id")
		d.err = errors.Join(
			readParsed(d.class, "abi_version", &d.abiVersion, strconv.Atoi),
			readParsed(dir, "node_type", &d.nodeType, parseNodeType),
			readParsed(dir, "node_guid", &d.nodeGUID, ib.ParseGUID),
			readParsed(dir, "sys_image_guid", &d.sysImageGUID, ib.ParseGUID),
			d.checkNode(),
		)
		if now, err := readAttr(d.class, "ibdev"); err == nil && now == name {
			return d
		}
	}
}

// dirOf returns the directory of the device with the name.
func (t tree) dirOf(name string) string { return filepath.Join(t.sys, "class/infiniband", name) }

// current returns the device's current name.
func (d *DeviceInfo) current() (string, error) {
	if !d.indexed { // without netlink, the number identifies the device
		return readAttr(d.class, "ibdev")
	}
	dev, err := d.tree.getDevice(context.Background(), d.index)
	return dev.Name, err
}

// inSysfs calls read with the device's directory, and again if the device was renamed meanwhile.
func (d *DeviceInfo) inSysfs(read func(dir string) error) error {
	name, err := d.current()
	for err == nil {
		readErr := read(d.tree.dirOf(name))
		before := name
		if name, err = d.current(); err == nil && name == before {
			return readErr
		}
	}
	return err
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
	n, err := strconv.ParseUint(number, 10, 8)
	return NodeType(n), err
}

// netDevs returns the network interfaces of the device's ports: the interface below a
// software device, the interfaces of the same PCI function, and those of its GIDs (such
// as VLANs and bonds).
func (d *DeviceInfo) netDevs() []string {
	var names []string
	d.inSysfs(func(sysfs string) error {
		names = nil
		if parent, err := readAttr(sysfs, "parent"); err == nil {
			names = append(names, parent)
		}
		for _, pattern := range []string{"device/net/*", "ports/*/gid_attrs/ndevs/*"} {
			paths, _ := filepath.Glob(filepath.Join(sysfs, pattern))
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
		return nil
	})
	if d.indexed {
		links, _ := d.tree.links(context.Background(), d.index) // only netlink has soft-iWARP's interface
		for _, l := range links {
			if name, ok := l.Netdev.Get(); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nameNetDevs sets the names of the GIDs' network interfaces.
func (d *DeviceInfo) nameNetDevs(table GIDTable) {
	d.inSysfs(func(sysfs string) error {
		for i := range table {
			if e := &table[i]; e.IfIndex != 0 {
				e.NetDev, _ = readAttr(sysfs, fmt.Sprintf("ports/%d/gid_attrs/ndevs/%d", e.Port, e.Index))
			}
		}
		return nil
	})
}

// pkeys returns n entries of a port's P_Key table.
func (d *DeviceInfo) pkeys(port, from, n int) (table []uint16, err error) {
	err = d.inSysfs(func(sysfs string) error {
		table = make([]uint16, n)
		for i := range table {
			if err := readParsed(sysfs, fmt.Sprintf("ports/%d/pkeys/%d", port, from+i), &table[i], func(s string) (uint16, error) {
				v, err := strconv.ParseUint(s, 0, 16)
				return uint16(v), err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return table, err
}

// guidFromBE converts a field of the kernel, which is in network byte order, to a GUID.
func guidFromBE(v uint64) GUID {
	var g GUID
	binary.NativeEndian.PutUint64(g[:], v)
	return g
}
