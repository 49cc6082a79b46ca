package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bed is a fictitious host: files, and the answers of a System.
type bed struct {
	files map[string]string // a value "-> TARGET" is a symbolic link
	fake
}

// fake is a System.
type fake struct {
	nodes   map[string]Node
	answers map[string]Answer
	refuse  map[string]error // why a device can't be opened
	addrs   map[string][]string
	stats   map[string]map[string]uint64
	speeds  map[string][2]int
	vlans   map[string]int
}

func (f *fake) Node(path string) Node {
	if n, ok := f.nodes[path]; ok {
		return n
	}
	return Node{Missing: fs.ErrNotExist}
}

func (f *fake) Query(device string) (Answer, error) { return f.answers[device], f.refuse[device] }

func (f *fake) Addrs(netDev string) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range f.addrs[netDev] {
		all = append(all, netip.MustParsePrefix(a))
	}
	return all
}

func (f *fake) Stats(netDev string) map[string]uint64 { return f.stats[netDev] }

func (f *fake) Speeds(netDev string) (active, both int) {
	s := f.speeds[netDev]
	return s[0], s[1]
}

func (f *fake) VLAN(netDev string) int { return f.vlans[netDev] }

// set adds files.
func (b *bed) set(files map[string]string) { maps.Copy(b.files, files) }

// remove removes a file, or a directory with its contents.
func (b *bed) remove(path string) {
	maps.DeleteFunc(b.files, func(p, _ string) bool { return p == path || strings.HasPrefix(p, path+"/") })
}

// write writes one file.
func (b *bed) write(t *testing.T, root, path, value string) {
	t.Helper()
	real := filepath.Join(root, path)
	err := os.MkdirAll(filepath.Dir(real), 0o755)
	if target, ok := strings.CutPrefix(value, "-> "); ok && err == nil {
		err = os.Symlink(target, real)
	} else if err == nil {
		err = os.WriteFile(real, []byte(value+"\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// host writes the files.
func (b *bed) host(t *testing.T) *Host {
	t.Helper()
	root := t.TempDir()
	for path, value := range b.files {
		b.write(t, root, path, value)
	}
	return &Host{Root: root, System: &b.fake}
}

// newBed returns a host without RDMA: a laptop, with one Ethernet interface. The files have the
// contents of Linux 6.1.
func newBed() *bed {
	b := &bed{
		files: map[string]string{
			"/proc/sys/kernel/osrelease":         "6.12.95+deb13-amd64",
			"/proc/self/status":                  "Name:\tibv\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-15",
			"/proc/self/limits":                  limits("unlimited", "unlimited"),
			"/proc/self/cgroup":                  "0::/user.slice/user-1000.slice",
			"/proc/meminfo":                      "MemTotal:       16301540 kB\nHugePages_Total:       0\nHugePages_Free:        0",
			"/sys/devices/system/node/online":    "0",
			"/sys/bus/pci/devices/.keep":         "",
			"/sys/bus/auxiliary/devices/.keep":   "",
			"/sys/class/net/lo/type":             "772",
			"/sys/fs/cgroup/cgroup.controllers":  "cpu io memory",
			"/sys/module/kernel/parameters/keep": "",
		},
		fake: fake{
			nodes: make(map[string]Node), answers: make(map[string]Answer), refuse: make(map[string]error),
			addrs: make(map[string][]string), stats: make(map[string]map[string]uint64), speeds: make(map[string][2]int),
		},
	}
	b.netDev("wlan0", 2, "192.168.1.7/24", "fe80::1/64")
	return b
}

func limits(soft, hard string) string {
	return fmt.Sprintf("Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\nMax locked memory         %-20s %-20s bytes", soft, hard)
}

// netDev adds a network interface that is up.
func (b *bed) netDev(name string, index int, addrs ...string) {
	dir := "/sys/class/net/" + name
	b.set(map[string]string{
		dir + "/type": "1", dir + "/flags": "0x1003", dir + "/carrier": "1", dir + "/operstate": "up", dir + "/mtu": "1500",
		dir + "/ifindex": fmt.Sprint(index), dir + "/iflink": fmt.Sprint(index), dir + "/dev_port": "0",
	})
	b.addrs[name] = addrs
}

// device adds the files that all devices have, with one active port.
func (b *bed) device(name string, number int, link string) {
	dir, uverbs := "/sys/class/infiniband/"+name, fmt.Sprintf("uverbs%d", number)
	numbers := fmt.Sprintf("231:%d", 192+number)
	b.set(map[string]string{
		dir + "/node_type": "1: CA", dir + "/node_guid": fmt.Sprintf("5054:00ff:fe12:345%d", number), dir + "/sys_image_guid": fmt.Sprintf("5054:00ff:fe12:345%d", number/2*2),
		dir + "/ports/1/state": "4: ACTIVE", dir + "/ports/1/phys_state": "5: LinkUp", dir + "/ports/1/link_layer": link,
		dir + "/ports/1/lid": "0x0", dir + "/ports/1/sm_lid": "0x0", dir + "/ports/1/pkeys/0": "0xffff",
		"/sys/class/infiniband_verbs/abi_version":                "6",
		"/sys/class/infiniband_verbs/" + uverbs + "/ibdev":       name,
		"/sys/class/infiniband_verbs/" + uverbs + "/dev":         numbers,
		"/sys/module/ib_uverbs/x":                                "",
		"/sys/module/rdma_ucm/x":                                 "",
		"/sys/module/ib_core/parameters/netns_mode":              "Y",
		"/sys/class/misc/rdma_cm/dev":                            "10:124",
		"/sys/class/infiniband_verbs/" + uverbs + "/abi_version": "1",
	})
	b.nodes["/dev/infiniband/"+uverbs] = Node{Mode: "0666", Owner: "root:root", Dev: numbers}
	b.nodes["/dev/infiniband/rdma_cm"] = Node{Mode: "0666", Owner: "root:root", Dev: "10:124"}
}

// gid adds an entry to a port's GID table.
func (b *bed) gid(device string, index int, gid, typ, netDev string) {
	dir := "/sys/class/infiniband/" + device + "/ports/1"
	n := fmt.Sprint(index)
	b.set(map[string]string{dir + "/gids/" + n: gid, dir + "/gid_attrs/types/" + n: typ, dir + "/gid_attrs/ndevs/" + n: netDev})
}

// rxe adds a software device.
func (b *bed) rxe(name string, number int, netDev, addr string) {
	b.device(name, number, "Ethernet")
	dir := "/sys/class/infiniband/" + name
	b.set(map[string]string{dir + "/parent": netDev, dir + "/ports/1/rate": "10 Gb/sec (1X FDR10)", "/sys/module/rdma_rxe/x": ""})
	for _, c := range []string{"completer_retry_err", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err", "duplicate_request", "sent_pkts"} {
		b.files[dir+"/ports/1/hw_counters/"+c] = "7"
	}
	b.files[fmt.Sprintf("/sys/class/infiniband_verbs/uverbs%d/abi_version", number)] = "2"
	b.gid(name, 0, "fe80:0000:0000:0000:0c3f:e7ff:fe59:d3a"+fmt.Sprint(number), rocev2, netDev)
	b.gid(name, 1, mapped(addr), rocev2, netDev)
	b.gid(name, 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
	b.answers[name] = Answer{Ports: []PortAnswer{{1024, 4096}}}
}

// mapped returns an IPv4 address as a GID, in sysfs's format.
func mapped(addr string) string {
	a := netip.MustParseAddr(addr).As4()
	return fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0], a[1], a[2], a[3])
}

// mlx5 adds a card with one port, in a slot as fast as the card.
func (b *bed) mlx5(name string, number int, link string) (pci string) {
	b.device(name, number, link)
	address := fmt.Sprintf("0000:%02x:00.0", number+1)
	slot := fmt.Sprintf("/sys/devices/pci0000:00/0000:00:%02x.0", number+6)
	pci = slot + "/" + address
	dir := "/sys/class/infiniband/" + name
	b.set(map[string]string{
		dir + "/device":                    "-> ../../../devices/pci0000:00/" + filepath.Base(slot) + "/" + address,
		dir + "/fw_ver":                    "20.40.1000",
		dir + "/ports/1/rate":              "100 Gb/sec (4X EDR)",
		pci + "/driver":                    "-> ../../../../bus/pci/drivers/mlx5_core",
		pci + "/vendor":                    "0x15b3",
		pci + "/device":                    "0x101b",
		pci + "/class":                     "0x020700",
		pci + "/current_link_speed":        "16.0 GT/s PCIe",
		pci + "/max_link_speed":            "16.0 GT/s PCIe",
		pci + "/current_link_width":        "16",
		pci + "/max_link_width":            "16",
		pci + "/numa_node":                 "-1",
		pci + "/local_cpulist":             "0-15",
		pci + "/config":                    config(0x5810),
		slot + "/max_link_speed":           "16.0 GT/s PCIe",
		slot + "/max_link_width":           "16",
		"/sys/module/mlx5_core/x":          "",
		"/sys/module/mlx5_ib/x":            "",
		"/sys/bus/pci/drivers/mlx5_core/x": "",
		"/sys/bus/pci/devices/" + address:  "-> ../../../devices/pci0000:00/" + filepath.Base(slot) + "/" + address,
		fmt.Sprintf("/sys/bus/auxiliary/devices/mlx5_core.rdma.%d/driver", number): "-> ../../drivers/mlx5_ib.rdma",
	})
	for _, c := range []string{"symbol_error", "link_downed", "port_xmit_discards", "port_rcv_data"} {
		b.files[dir+"/ports/1/counters/"+c] = "3"
	}
	for _, c := range []string{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_buffer", "np_cnp_sent"} {
		b.files[dir+"/ports/1/hw_counters/"+c] = "12"
	}
	b.answers[name] = Answer{Ports: []PortAnswer{{4096, 4096}}, ODP: true}
	return pci
}

// config returns a PCI configuration space with a Device Control register.
func config(control uint16) string {
	c := make([]byte, 4096)
	c[0x34], c[0x40], c[0x41], c[0x60] = 0x40, 0x01, 0x60, 0x10
	c[0x68], c[0x69] = byte(control), byte(control>>8)
	return string(c)
}

// The hosts that are healthy.

func laptopWithRXE() *bed {
	b := newBed()
	b.netDev("eth0", 3, "192.168.77.1/24", "fe80::c3f:e7ff:fe59:d3a0/64")
	b.rxe("rxe0", 0, "eth0", "192.168.77.1")
	return b
}

// rigRXE is a guest of the rig: Linux 6.1, two devices on a veth pair, root.
func rigRXE() *bed {
	b := newBed()
	b.set(map[string]string{
		"/proc/sys/kernel/osrelease": "6.1.0-56-amd64",
		"/proc/self/status":          "Name:\tibv\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1",
		"/proc/self/limits":          limits("8388608", "8388608"),
		"/proc/self/cgroup":          "",
	})
	for i, n := range []string{"veth0", "veth1"} {
		addr := fmt.Sprintf("192.168.77.%d", i+1)
		b.netDev(n, 3+i, addr+"/24", "fe80::c3f:e7ff:fe59:d3ad/64")
		b.files["/sys/class/net/"+n+"/iflink"] = fmt.Sprint(4 - i)
		b.files["/proc/sys/net/ipv4/conf/"+n+"/accept_local"] = "0"
		b.rxe(fmt.Sprintf("rxe%d", i), i, n, addr)
	}
	return b
}

func ownAccepted() *bed {
	b := rigRXE()
	for _, n := range []string{"veth0", "veth1"} {
		b.files[acceptLocal(n)] = "1"
	}
	return b
}

// infiniBand has a card with two InfiniBand ports, the second without a cable.
func infiniBand() *bed {
	b := newBed()
	for i := range 2 {
		name := fmt.Sprintf("mlx5_%d", i)
		b.mlx5(name, i, "InfiniBand")
		port := "/sys/class/infiniband/" + name + "/ports/1"
		b.set(map[string]string{
			port + "/gids/0": "fe80:0000:0000:0000:0002:c903:006f:760" + fmt.Sprint(i), port + "/gid_attrs/types/0": rocev1,
			port + "/lid": "0x1", port + "/sm_lid": "0xbfff",
		})
	}
	b.set(map[string]string{
		"/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN", "/sys/class/infiniband/mlx5_1/ports/1/phys_state": "2: Polling",
		"/sys/class/infiniband/mlx5_1/ports/1/rate": "2.5 Gb/sec (1X SDR)", "/sys/class/infiniband/mlx5_1/ports/1/sm_lid": "0x0",
	})
	return b
}

// roce has a card with an Ethernet port, jumbo frames, IPv4 and IPv6, as a server has it.
func roce() *bed {
	b := newBed()
	b.mlx5("mlx5_0", 0, "Ethernet")
	b.netDev("ens1f0np0", 3, "10.1.2.3/24", "2001:db8::3/64", "fe80::ac0:ebff:fe12:3456/64")
	b.set(map[string]string{
		"/sys/class/net/ens1f0np0/mtu":                                      "9000",
		"/sys/class/net/ens1f0np0/device":                                   "-> ../../../devices/pci0000:00/0000:00:06.0/0000:01:00.0",
		"/sys/devices/pci0000:00/0000:00:06.0/0000:01:00.0/net/ens1f0np0/x": "",
		"/sys/devices/system/node/online":                                   "0-1",
		"/sys/devices/pci0000:00/0000:00:06.0/0000:01:00.0/numa_node":       "1",
		"/sys/devices/pci0000:00/0000:00:06.0/0000:01:00.0/local_cpulist":   "8-15",
	})
	for i, g := range []string{"fe80:0000:0000:0000:0ac0:ebff:fe12:3456", mapped("10.1.2.3"), "2001:0db8:0000:0000:0000:0000:0000:0003"} {
		b.gid("mlx5_0", 2*i, g, rocev1, "ens1f0np0")
		b.gid("mlx5_0", 2*i+1, g, rocev2, "ens1f0np0")
	}
	b.stats["ens1f0np0"] = map[string]uint64{"rx_symbol_err_phy": 1, "rx_prio3_pause": 4, "rx_packets": 9}
	b.speeds["ens1f0np0"] = [2]int{100000, 100000}
	return b
}

// newcardAndMLX5 has a device without a provider in goverbs, beside a device with one.
func newcardAndMLX5() *bed {
	b := roce()
	b.unspecified("newcard_0", "newcard", 1)
	return b
}

// efa is a machine at AWS without the connection manager, which doesn't support the device.
func efa() *bed {
	b := newBed()
	b.unspecified("rdmap0s6", "efa", 0)
	b.answers["rdmap0s6"] = Answer{Ports: []PortAnswer{{4096, 4096}}}
	delete(b.files, "/sys/class/misc/rdma_cm/dev")
	delete(b.files, "/sys/module/rdma_ucm/x")
	delete(b.nodes, "/dev/infiniband/rdma_cm")
	return b
}

// unspecified adds a card that is on neither InfiniBand nor Ethernet.
func (b *bed) unspecified(name, driver string, number int) {
	b.device(name, number, "Unknown")
	b.set(map[string]string{
		"/sys/class/infiniband/" + name + "/device":         "-> ../../../devices/pci0000:00/0000:00:1e.0",
		"/sys/class/infiniband/" + name + "/node_type":      "7: unspecified",
		"/sys/class/infiniband/" + name + "/ports/1/gids/0": "fe80:0000:0000:0000:0002:c903:006f:7602",
		"/sys/class/infiniband/" + name + "/ports/1/rate":   "100 Gb/sec (4X EDR)",
		"/sys/devices/pci0000:00/0000:00:1e.0/driver":       "-> ../../../bus/pci/drivers/" + driver,
		"/sys/devices/pci0000:00/0000:00:1e.0/vendor":       "0x1d0f",
		"/sys/devices/pci0000:00/0000:00:1e.0/config":       config(0x5810),
	})
}

// bonded has two ports of a card in a bond, with one RDMA device for both.
func bonded() *bed {
	b := newBed()
	b.mlx5("mlx5_bond_0", 0, "Ethernet")
	pci := "/sys/devices/pci0000:00/0000:00:06.0/0000:01:00.0"
	b.netDev("ens1f0np0", 3)
	b.netDev("bond0", 5, "10.1.2.3/24", "fe80::ac0:ebff:fe12:3456/64")
	b.set(map[string]string{
		"/sys/class/net/ens1f0np0/device":   "-> ../../../devices/pci0000:00/0000:00:06.0/0000:01:00.0",
		pci + "/net/ens1f0np0/x":            "",
		"/sys/class/net/ens1f0np0/master":   "-> ../bond0",
		"/sys/class/net/bond0/bonding/mode": "802.3ad 4",
	})
	b.gid("mlx5_bond_0", 0, "fe80:0000:0000:0000:0ac0:ebff:fe12:3456", rocev2, "bond0")
	b.gid("mlx5_bond_0", 1, mapped("10.1.2.3"), rocev2, "bond0")
	b.answers["mlx5_bond_0"] = Answer{Ports: []PortAnswer{{1024, 4096}}}
	return b
}

// dockerShared is a container with the host's network, one device passed in.
func dockerShared() *bed {
	b := roce()
	b.files["/.dockerenv"] = ""
	b.files["/proc/self/status"] = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80465fb\nCpus_allowed_list:\t0-15"
	return b
}

// iwarp has an iWARP device beside a software device.
func iwarp() *bed {
	b := laptopWithRXE()
	b.device("irdma0", 1, "Ethernet")
	b.netDev("ens2f0", 6, "10.5.5.5/24")
	b.set(map[string]string{
		"/sys/class/infiniband/irdma0/node_type":            "4: RNIC",
		"/sys/class/infiniband/irdma0/device":               "-> ../../../devices/pci0000:00/0000:00:1f.0",
		"/sys/devices/pci0000:00/0000:00:1f.0/driver":       "-> ../../../bus/pci/drivers/ice",
		"/sys/devices/pci0000:00/0000:00:1f.0/net/ens2f0/x": "",
		"/sys/class/infiniband/irdma0/ports/1/rate":         "25 Gb/sec (1X EDR)",
	})
	b.gid("irdma0", 0, "0a3f:e7ff:fe59:0000:0000:0000:0000:0000", rocev1, "")
	b.refuse["irdma0"] = errNoProvider
	return b
}
