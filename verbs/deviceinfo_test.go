package verbs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/rdmanl"
)

// plant makes a tree of files, by their paths.
func plant(t *testing.T, files map[string]string) tree {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree{
		sys: filepath.Join(root, "sys"), dev: filepath.Join(root, "dev"),
		findDevice: func(context.Context, string) (rdmanl.Device, error) { return rdmanl.Device{}, errNoNetlink },
	}
}

var errNoNetlink = errors.New("there is no netlink here")

// machine is a host with a software device, a two-port adapter whose second
// port is on a VLAN, and an iWARP adapter whose node is missing.
func machine(t *testing.T) tree {
	return plant(t, map[string]string{
		"sys/class/infiniband_verbs/abi_version": "6\n",

		"sys/class/infiniband_verbs/uverbs10/ibdev":       "rxe0\n",
		"sys/class/infiniband_verbs/uverbs10/abi_version": "2\n",
		"sys/class/infiniband/rxe0/node_type":             "1: CA\n",
		"sys/class/infiniband/rxe0/node_guid":             "5054:00ff:fe12:3456\n",
		"sys/class/infiniband/rxe0/sys_image_guid":        "5054:00ff:fe12:3456\n",
		"sys/class/infiniband/rxe0/fw_ver":                "\n",
		"sys/class/infiniband/rxe0/parent":                "eth0\n",
		"sys/class/infiniband/rxe0/ports/1/pkeys/0":       "0xffff\n",
		"dev/infiniband/uverbs10":                         "",

		"sys/class/infiniband_verbs/uverbs2/ibdev":              "mlx5_0\n",
		"sys/class/infiniband_verbs/uverbs2/abi_version":        "1\n",
		"sys/class/infiniband/mlx5_0/node_type":                 "1: CA\n",
		"sys/class/infiniband/mlx5_0/node_guid":                 "0c42:a103:0065:4eb2\n",
		"sys/class/infiniband/mlx5_0/sys_image_guid":            "0c42:a103:0065:4eb0\n",
		"sys/class/infiniband/mlx5_0/fw_ver":                    "20.31.1014\n",
		"sys/class/infiniband/mlx5_0/hw_rev":                    "0\n",
		"sys/class/infiniband/mlx5_0/board_id":                  "MT_0000000224\n",
		"sys/class/infiniband/mlx5_0/device/net/ens1f0/ifindex": "4\n",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": "ens1f0\n",
		"sys/class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/3": "ens1f0.7\n",
		"sys/class/infiniband/mlx5_0/ports/2/pkeys/1":           "0x8001\n",
		"dev/infiniband/uverbs2":                                "",

		"sys/class/infiniband_verbs/uverbs3/ibdev":       "iwp0\n",
		"sys/class/infiniband_verbs/uverbs3/abi_version": "1\n",
		"sys/class/infiniband/iwp0/node_type":            "4: RNIC\n",
		"sys/class/infiniband/iwp0/node_guid":            "0002:c903:0000:0001\n",
		"sys/class/infiniband/iwp0/sys_image_guid":       "0002:c903:0000:0001\n",
	})
}

func TestDevices(t *testing.T) {
	m := machine(t)
	devs, err := m.devices()
	if err != nil {
		t.Fatal(err)
	}
	type device struct {
		Name, Node    string
		ABI           int
		Type          NodeType
		Transport     Transport
		GUID, Image   string
		FW, HW, Board string
		NetDevs       []string
		NodeMissing   bool
	}
	var got []device
	for _, d := range devs {
		node, _ := filepath.Rel(m.dev, d.Node())
		got = append(got, device{
			d.Name(), node, d.ABIVersion(), d.NodeType(), d.Transport(),
			d.NodeGUID().String(), d.SysImageGUID().String(),
			d.FWVer(), d.HWRev(), d.BoardID(), d.NetDevs(), errors.Is(d.Err(), fs.ErrNotExist),
		})
	}
	want := []device{ // uverbs2 comes before uverbs10
		{
			Name: "mlx5_0", Node: "infiniband/uverbs2", ABI: 1, Type: NodeCA, Transport: TransportIB,
			GUID: "0c42:a103:0065:4eb2", Image: "0c42:a103:0065:4eb0",
			FW: "20.31.1014", HW: "0", Board: "MT_0000000224", NetDevs: []string{"ens1f0", "ens1f0.7"},
		},
		{
			Name: "iwp0", Node: "infiniband/uverbs3", ABI: 1, Type: NodeRNIC, Transport: TransportIWARP,
			GUID: "0002:c903:0000:0001", Image: "0002:c903:0000:0001", NodeMissing: true,
		},
		{
			Name: "rxe0", Node: "infiniband/uverbs10", ABI: 2, Type: NodeCA, Transport: TransportIB,
			GUID: "5054:00ff:fe12:3456", Image: "5054:00ff:fe12:3456", NetDevs: []string{"eth0"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if err := devs[1].Err(); err == nil || !strings.Contains(err.Error(), devs[1].Node()) || !strings.Contains(err.Error(), "--device") {
		t.Errorf("Err of a device without a node = %v, want it to name the node and --device", err)
	}
	for i, key := range []uint16{0: 0x8001, 2: 0xffff} {
		if key == 0 {
			continue
		}
		port, index := 2, 1
		if i == 2 {
			port, index = 1, 0
		}
		if got, err := devs[i].pkeys(port, index, 1); err != nil || got[0] != key {
			t.Errorf("%s: P_Key = %#x, %v, want %#x", devs[i], got, err, key)
		}
	}
	if _, err := devs[0].pkeys(1, 9, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("P_Key that isn't there: %v", err)
	}
	gids := GIDTable{{Port: 2, Index: 3, IfIndex: 5}, {Port: 2, Index: 3}}
	if devs[0].nameNetDevs(gids); gids[0].NetDev != "ens1f0.7" || gids[1].NetDev != "" {
		t.Errorf("the GIDs are of %+v", gids)
	}
}

func TestNoDevices(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		hint  string
	}{
		"nothing":        {nil, "rdma_rxe"},
		"without uverbs": {map[string]string{"sys/class/infiniband/mlx4_0/node_type": "1: CA\n"}, "load the kernel module ib_uverbs"},
		"empty class":    {map[string]string{"sys/class/infiniband_verbs/abi_version": "6\n"}, "/dev/infiniband"},
	} {
		t.Run(name, func(t *testing.T) {
			m := plant(t, test.files)
			devs, err := m.devices()
			if err != nil || len(devs) != 0 {
				t.Fatalf("devices = %v, %v", devs, err)
			}
			_, err = m.find(devs, "")
			if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), test.hint) {
				t.Errorf("find: %v, want ErrNoDevice and %q", err, test.hint)
			}
		})
	}
}

// A netlink has the kernel's names of devices, by index.
type netlink map[uint32]string

// in returns a tree that uses it.
func (n netlink) in(t tree) tree {
	t.findDevice = func(_ context.Context, name string) (rdmanl.Device, error) {
		for index, has := range n {
			if has == name {
				return rdmanl.Device{Index: index, Name: name}, nil
			}
		}
		return rdmanl.Device{}, rdmanl.ErrNoDevice
	}
	t.getDevice = func(_ context.Context, index uint32) (rdmanl.Device, error) {
		if name, ok := n[index]; ok {
			return rdmanl.Device{Index: index, Name: name}, nil
		}
		return rdmanl.Device{}, rdmanl.ErrNoDevice
	}
	t.links = func(_ context.Context, index uint32) ([]rdmanl.Link, error) {
		return []rdmanl.Link{{Index: index, Port: 1, Netdev: rdmanl.Some(fmt.Sprint("netdev", index))}, {Index: index, Port: 2}}, nil
	}
	return t
}

// TestRenamedDevice: a renamed device's properties are its own, not those of the device that has
// taken its name, with netlink and without.
func TestRenamedDevice(t *testing.T) {
	for _, index := range []bool{false, true} {
		m := machine(t)
		names := netlink{7: "mlx5_0", 8: "rxe0", 9: "iwp0"}
		if index {
			m = names.in(m)
		}
		devs, err := m.devices()
		if err != nil {
			t.Fatal(err)
		}
		d := devs[0]
		rename := func(from, to string, index uint32, node string) {
			t.Helper()
			class := filepath.Join(m.sys, "class")
			if err := os.Rename(filepath.Join(class, "infiniband", from), filepath.Join(class, "infiniband", to)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(class, "infiniband_verbs", node, "ibdev"), []byte(to+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			names[index] = to
		}
		check := func(when string) {
			t.Helper()
			want := []string{"ens1f0", "ens1f0.7"}
			if got, err := d.Index(); index && (got != 7 || err != nil) || !index && !errors.Is(err, errNoNetlink) {
				t.Errorf("%s: index %d, %v", when, got, err)
			}
			if index {
				want = append(want, "netdev7")
			}
			if diff := cmp.Diff(want, d.NetDevs()); diff != "" {
				t.Errorf("%s, index %v: interfaces (-want +got):\n%s", when, index, diff)
			}
			if keys, err := d.pkeys(2, 1, 1); err != nil || keys[0] != 0x8001 {
				t.Errorf("%s, index %v: P_Keys %#x, %v", when, index, keys, err)
			}
			gids := GIDTable{{Port: 2, Index: 3, IfIndex: 5}}
			if d.nameNetDevs(gids); gids[0].NetDev != "ens1f0.7" {
				t.Errorf("%s, index %v: the GID is of %q", when, index, gids[0].NetDev)
			}
		}
		check("at first")
		rename("mlx5_0", "other", 7, "uverbs2")
		check("renamed")
		rename("rxe0", "mlx5_0", 8, "uverbs10")
		check("its name taken")
		if !index {
			continue
		}
		delete(names, 7)
		if keys, err := d.pkeys(2, 1, 1); !errors.Is(err, rdmanl.ErrNoDevice) {
			t.Errorf("the P_Keys of a device that is gone: %#x, %v", keys, err)
		}
	}
}

// TestZeroDeviceInfo: the zero DeviceInfo is no device.
func TestZeroDeviceInfo(t *testing.T) {
	d := new(DeviceInfo)
	if index, err := d.Index(); !errors.Is(err, ErrNoDevice) {
		t.Errorf("index %d, %v", index, err)
	}
	if names := d.NetDevs(); len(names) != 0 {
		t.Errorf("interfaces %v", names)
	}
	if c, err := d.Open(); err == nil {
		t.Errorf("opened %v", c)
	}
}

// TestDamagedDevices: a device that vanishes while it is read, or that has an unreadable
// file, does not hide the others.
func TestDamagedDevices(t *testing.T) {
	m := machine(t)
	class := filepath.Join(m.sys, "class")
	if err := os.Remove(filepath.Join(class, "infiniband_verbs/uverbs3/ibdev")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(class, "infiniband/rxe0/node_guid"), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	devs, err := m.devices()
	if err != nil || len(devs) != 2 {
		t.Fatalf("devices = %v, %v", devs, err)
	}
	if err := devs[0].Err(); err != nil {
		t.Errorf("%v: %v", devs[0], err)
	}
	if err := devs[1].Err(); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%v: %v, want it to show the bad GUID", devs[1], err)
	}
}

func TestFindDevice(t *testing.T) {
	m := machine(t)
	devs, err := m.devices()
	if err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]string{
		"":                    "mlx5_0",
		"rxe0":                "rxe0",
		"5054:00ff:fe12:3456": "rxe0",
		"505400fffe123456":    "rxe0",
		"eth0":                "rxe0",
		"ens1f0":              "mlx5_0",
		"ens1f0.7":            "mlx5_0",
		"0002c90300000001":    "iwp0",
	} {
		if d, err := m.find(devs, selector); err != nil || len(d) == 0 || d[0].Name() != want || selector != "" && len(d) != 1 {
			t.Errorf("find(%q) = %v, %v, want %s", selector, d, err, want)
		}
	}
	_, err = m.find(devs, "eth9")
	if !errors.Is(err, ErrNoDevice) {
		t.Fatalf("find(eth9): %v", err)
	}
	for _, word := range []string{"eth9", "rxe0", "5054:00ff:fe12:3456", "ens1f0.7"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, err)
		}
	}
}

// TestOpenFirst: without a selector, a device that doesn't open doesn't hide one that
// does.
func TestOpenFirst(t *testing.T) {
	m := machine(t)
	devs, err := m.devices()
	if err != nil {
		t.Fatal(err)
	}
	all, err := m.find(devs, "")
	if err != nil {
		t.Fatal(err)
	}
	want := new(Device)
	var tried []string
	dev, err := openFirst(all, func(d *DeviceInfo) (*Device, error) {
		if tried = append(tried, d.Name()); len(tried) < 3 {
			return nil, fs.ErrPermission
		}
		return want, nil
	})
	if dev != want || err != nil || len(tried) != 3 || tried[0] != "mlx5_0" {
		t.Errorf("tried %v: %v", tried, err)
	}
	_, err = openFirst(all, func(d *DeviceInfo) (*Device, error) { return nil, openError(d, fs.ErrPermission) })
	for _, d := range all {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), d.Node()) {
			t.Errorf("%v doesn't say what is wrong with %v", err, d)
		}
	}
}
