package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

var errNoProvider = fmt.Errorf("open device: %w: this program has no provider for the device's driver", verbs.ErrNotSupported)

const (
	pciCard = "/sys/devices/pci0000:00/0000:00:06.0/0000:01:00.0"
	ib0     = "/sys/class/infiniband/mlx5_0/ports/1"
	rxe0    = "/sys/class/infiniband/rxe0/ports/1"
	eth     = "/sys/class/net/ens1f0np0"
)

// A fault is a change to a healthy host.
type fault struct {
	name     string
	bed      *bed
	change   func(b *bed)
	device   string            // the device to examine
	meantime map[string]string // files that change while doctor watches
	want     string            // the finding or note
	seen     string            // a source of its evidence
	mend     string            // a command of it, or part of its advice
}

func set(path, value string) func(*bed) {
	return func(b *bed) { b.files[path] = value }
}

func remove(paths ...string) func(*bed) {
	return func(b *bed) {
		for _, p := range paths {
			b.remove(p)
		}
	}
}

// state sets the state of the first InfiniBand port, and removes the other.
func state(logical, physical, smLID string) func(*bed) {
	return func(b *bed) {
		b.set(map[string]string{ib0 + "/state": logical, ib0 + "/phys_state": physical, ib0 + "/sm_lid": smLID})
	}
}

func node(path string, n Node) func(*bed) {
	return func(b *bed) { b.nodes[path] = n }
}

func refuse(device string, err error) func(*bed) {
	return func(b *bed) { b.refuse[device] = err }
}

// switchPort returns the folder of a port of the PCIe switch that atSwitch adds.
func switchPort(n int) string {
	return fmt.Sprintf("/sys/devices/pci0000:00/0000:00:06.0/0000:01:00.0/0000:02:%02x.0", n)
}

// acsConfig returns the configuration space of a bridge whose ACS Control register has this value. It is behind another
// capability.
func acsConfig(control uint16) string {
	c := []byte(config(0))
	const aer, acs = 0x100, 0x148
	binary.LittleEndian.PutUint32(c[aer:], acs<<20|1<<16|0x01)
	binary.LittleEndian.PutUint32(c[acs:], 1<<16|0x0d)
	binary.LittleEndian.PutUint16(c[acs+6:], control)
	return string(c)
}

// atSwitch moves the card to a port of a PCIe switch that has another device at another port. The arguments are the ACS
// Control registers of the two ports, and the device's class.
func atSwitch(card, other uint16, class string) func(*bed) {
	return func(b *bed) {
		const in = "pci0000:00/0000:00:06.0/0000:01:00.0"
		moved := make(map[string]string)
		for path, value := range b.files {
			moved[strings.ReplaceAll(path, in, in+"/0000:02:08.0/0000:03:00.0")] = strings.ReplaceAll(value, in, in+"/0000:02:08.0/0000:03:00.0")
		}
		b.files = moved
		b.set(map[string]string{
			switchPort(8) + "/config":              acsConfig(card),
			switchPort(8) + "/max_link_speed":      "16.0 GT/s PCIe",
			switchPort(8) + "/max_link_width":      "16",
			switchPort(16) + "/config":             acsConfig(other),
			switchPort(16) + "/0000:04:00.0/class": class,
			"/sys/bus/pci/devices/0000:04:00.0":    "-> ../../.." + strings.TrimPrefix(switchPort(16), "/sys") + "/0000:04:00.0",
		})
	}
}

func faults() []fault {
	uverbs0 := Node{Mode: "0600", Owner: "root:root", Dev: "231:192"}
	opens := func(err error) Node {
		n := uverbs0
		n.Open = err
		return n
	}
	return []fault{
		{name: "no RDMA hardware", bed: newBed(), want: "no-device", seen: "/sys/class/infiniband", mend: "ibv link add rxe0 type rxe netdev wlan0"},
		{name: "no RDMA hardware, in a container", bed: newBed(), change: set("/.dockerenv", ""), want: "no-device", mend: "container"},
		{name: "a Wi-Fi card without driver", bed: laptopWithRXE(), change: func(b *bed) {
			b.set(map[string]string{"/sys/bus/pci/devices/0000:02:00.0/class": "0x028000", "/sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086", "/sys/bus/pci/devices/0000:02:00.0/device": "0x24f3"})
		}},
		{name: "no RDMA hardware, with Ethernet", bed: newBed(), change: func(b *bed) {
			b.files["/sys/class/net/wlan0/phy80211/x"] = ""
			b.netDev("docker0", 3, "172.17.0.1/16")
			b.netDev("enp1s0", 4, "192.168.1.8/24")
			b.files["/sys/class/net/enp1s0/device/x"] = ""
		}, want: "no-device", mend: "netdev enp1s0"},
		{name: "no /sys", bed: newBed(), change: remove("/sys"), want: "sys-missing", seen: "/sys/class", mend: "mount -t sysfs"},
		{name: "the wrong name", bed: roce(), device: "mlx5_7", want: "device-unknown", seen: "/sys/class/infiniband", mend: "ibv doctor mlx5_0"},
		{name: "no driver", bed: roce(), change: remove("/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/module/mlx5_core", "/sys/module/mlx5_ib", pciCard+"/driver", "/sys/bus/auxiliary/devices/mlx5_core.rdma.0"),
			want: "driver-missing", seen: "/sys/bus/pci/devices/0000:01:00.0/vendor", mend: "modprobe mlx5_core\nmodprobe mlx5_ib"},
		{name: "the driver refuses the card", bed: roce(), change: remove("/sys/class/infiniband", "/sys/class/infiniband_verbs", pciCard+"/driver", "/sys/bus/auxiliary/devices/mlx5_core.rdma.0"),
			want: "card-unbound", mend: "echo 0000:01:00.0 > /sys/bus/pci/drivers_probe"},
		{name: "no mlx5_ib", bed: roce(), change: func(b *bed) {
			remove("/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/module/mlx5_ib", "/sys/bus/auxiliary/devices/mlx5_core.rdma.0/driver")(b)
			b.files["/sys/bus/auxiliary/devices/mlx5_core.rdma.0/uevent"] = ""
		}, want: "rdma-driver-missing", seen: "/sys/module/mlx5_ib", mend: "modprobe mlx5_ib"},
		{name: "no irdma", bed: newBed(), change: set("/sys/bus/auxiliary/devices/ice.roce.0/uevent", ""), want: "rdma-driver-missing", mend: "modprobe irdma"},
		{name: "no irdma, beside mlx5", bed: roce(), change: set("/sys/bus/auxiliary/devices/ice.roce.0/uevent", ""), want: "rdma-driver-spare", mend: "modprobe irdma"},
		{name: "mlx5_ib refuses the card", bed: roce(), change: func(b *bed) {
			remove("/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/bus/auxiliary/devices/mlx5_core.rdma.0/driver")(b)
			b.files["/sys/bus/auxiliary/devices/mlx5_core.rdma.0/uevent"] = ""
		}, want: "rdma-driver-unbound", mend: "rmmod mlx5_ib && modprobe mlx5_ib"},
		{name: "no ib_uverbs", bed: laptopWithRXE(), change: remove("/sys/class/infiniband_verbs", "/sys/module/ib_uverbs"), want: "uverbs-missing", mend: "modprobe ib_uverbs"},
		{name: "no node", bed: laptopWithRXE(), change: node("/dev/infiniband/uverbs0", Node{Missing: syscall.ENOENT}), want: "node-missing",
			seen: "/dev/infiniband/uverbs0", mend: "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 231 192"},
		{name: "a container without the node", bed: dockerShared(), change: node("/dev/infiniband/uverbs0", Node{Missing: syscall.ENOENT}), want: "node-missing",
			mend: "docker run --device /dev/infiniband/uverbs0 …"},
		{name: "the node of an earlier device", bed: dockerShared(), change: node("/dev/infiniband/uverbs0", Node{Mode: "0666", Owner: "root:root", Dev: "231:193"}), want: "node-stale",
			seen: "/dev/infiniband/uverbs0", mend: "rm /dev/infiniband/uverbs0 && mknod"},
		{name: "a file in place of the node", bed: laptopWithRXE(), change: node("/dev/infiniband/uverbs0", Node{Mode: "0644", Owner: "root:root"}), want: "node-stale", mend: "mknod"},
		{name: "no permission", bed: laptopWithRXE(), change: node("/dev/infiniband/uverbs0", opens(syscall.EACCES)), want: "node-permission",
			seen: "/dev/infiniband/uverbs0", mend: "chmod 666 /dev/infiniband/uverbs0"},
		{name: "no permission for the folder", bed: laptopWithRXE(), change: node("/dev/infiniband/uverbs0", Node{Missing: syscall.EACCES}), want: "node-permission", mend: "chmod 755 /dev/infiniband"},
		{name: "the node mounted, not allowed", bed: dockerShared(), change: node("/dev/infiniband/uverbs0", opens(syscall.EPERM)), want: "device-cgroup", mend: "docker run --device"},
		{name: "the device is gone", bed: laptopWithRXE(), change: node("/dev/infiniband/uverbs0", opens(syscall.EIO)), want: "open-failed", mend: "dmesg"},
		{name: "the device can't be opened", bed: laptopWithRXE(), change: refuse("rxe0", errors.New("open device rxe0: input/output error")), want: "open-failed", mend: "dmesg | grep rxe0"},
		{name: "an old kernel", bed: laptopWithRXE(), change: func(b *bed) {
			b.files["/proc/sys/kernel/osrelease"] = "5.4.0-200-generic"
			b.refuse["rxe0"] = fmt.Errorf("%w: this kernel's uverbs has no ioctls", verbs.ErrNotSupported)
		}, want: "kernel-old", seen: "/proc/sys/kernel/osrelease", mend: "newer kernel"},
		{name: "a strange ABI", bed: laptopWithRXE(), change: func(b *bed) {
			b.files["/sys/class/infiniband_verbs/uverbs0/abi_version"] = "99"
			b.refuse["rxe0"] = fmt.Errorf("%w: driver rxe has ABI version 99", verbs.ErrNotSupported)
		}, want: "abi-version", seen: "/sys/class/infiniband_verbs/uverbs0/abi_version", mend: "version"},
		{name: "no provider", bed: newcardAndMLX5(), device: "newcard_0", change: refuse("newcard_0", errNoProvider), want: "no-provider", mend: "provider"},
		{name: "no rdma_ucm", bed: laptopWithRXE(), change: remove("/sys/class/misc/rdma_cm"), want: "rdma-cm-missing", seen: "/sys/class/misc/rdma_cm", mend: "modprobe rdma_ucm"},
		{name: "no node of rdma_cm", bed: laptopWithRXE(), change: node("/dev/infiniband/rdma_cm", Node{Missing: syscall.ENOENT}), want: "node-missing", mend: "mknod -m 666 /dev/infiniband/rdma_cm c 10 124"},
		{name: "rdma_cm for root only", bed: laptopWithRXE(), change: node("/dev/infiniband/rdma_cm", Node{Mode: "0600", Owner: "root:root", Dev: "10:124", Open: syscall.EACCES}), want: "node-permission", mend: "chmod 666 /dev/infiniband/rdma_cm"},

		{name: "memlock 64k", bed: laptopWithRXE(), change: set("/proc/self/limits", limits("65536", "65536")), want: "memlock-low", seen: "/proc/self/limits", mend: "prlimit --pid $$ --memlock=unlimited"},
		{name: "memlock 8M, could be more", bed: laptopWithRXE(), change: set("/proc/self/limits", limits("8388608", "unlimited")), want: "memlock-low", mend: "ulimit -l unlimited"},
		{name: "a container without IPC_LOCK", bed: dockerShared(), change: func(b *bed) {
			b.files["/proc/self/limits"] = limits("8388608", "8388608")
			b.files["/proc/self/status"] = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\nCpus_allowed_list:\t0-15"
		}, want: "ipc-lock", seen: "/proc/self/status", mend: "--ulimit memlock=-1"},
		{name: "a container with IPC_LOCK for a user", bed: dockerShared(), change: func(b *bed) {
			b.files["/proc/self/limits"] = limits("8388608", "8388608")
			b.files["/proc/self/status"] = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCapBnd:\t00000000a80465fb\nCpus_allowed_list:\t0-15"
		}, want: "memlock-low", seen: "/proc/self/status", mend: "IPC_LOCK doesn't help here"},
		{name: "a rootless container", bed: dockerShared(), change: func(b *bed) {
			b.files["/proc/self/limits"] = limits("8388608", "8388608")
			b.files["/proc/self/uid_map"] = "         0       1000          1\n         1     100000      65536"
		}, want: "ipc-lock", mend: "--ulimit memlock=-1"},
		{name: "a container with the node, without rdma_cm", bed: dockerShared(), change: node("/dev/infiniband/rdma_cm", Node{Missing: syscall.ENOENT}), want: "node-not-passed", mend: "--device /dev/infiniband/rdma_cm"},
		{name: "a container with one of two nodes", bed: dockerShared(), change: func(b *bed) {
			b.mlx5("mlx5_1", 1, "Ethernet")
			delete(b.nodes, "/dev/infiniband/uverbs1")
			b.gid("mlx5_1", 1, mapped("10.9.9.9"), rocev2, "ens9")
		}, want: "node-not-passed", mend: "--device /dev/infiniband/uverbs1"},
		{name: "no handles left in the cgroup", bed: roce(), change: func(b *bed) {
			b.files["/sys/fs/cgroup/user.slice/rdma.max"] = "mlx5_0 hca_handle=2 hca_object=max"
			b.files["/sys/fs/cgroup/user.slice/rdma.current"] = "mlx5_0 hca_handle=2 hca_object=17"
			b.refuse["mlx5_0"] = syscall.EAGAIN
		}, want: "rdma-cgroup", seen: "/sys/fs/cgroup/user.slice/rdma.max", mend: "echo 'mlx5_0 hca_handle=max hca_object=max' > /sys/fs/cgroup/user.slice/rdma.max"},
		{name: "few objects left in a cgroup of version 1", bed: roce(), change: func(b *bed) {
			b.files["/proc/self/cgroup"] = "4:rdma:/job7\n1:name=systemd:/job7"
			b.files["/sys/fs/cgroup/rdma/job7/rdma.max"] = "mlx5_0 hca_handle=10 hca_object=20"
			b.files["/sys/fs/cgroup/rdma/job7/rdma.current"] = "mlx5_0 hca_handle=1 hca_object=15"
		}, want: "rdma-cgroup", mend: "/sys/fs/cgroup/rdma/job7/rdma.max"},
		{name: "devices in other namespaces", bed: newBed(), change: set("/sys/module/ib_core/parameters/netns_mode", "N"), want: "netns-exclusive",
			seen: "/sys/module/ib_core/parameters/netns_mode", mend: "ibv system set netns shared"},
		{name: "the interface is in another namespace", bed: roce(), change: remove(eth), want: "netdev-elsewhere", seen: eth, mend: "ip link set dev ens1f0np0 netns"},
		{name: "the interface of rxe is in another namespace", bed: laptopWithRXE(), change: remove("/sys/class/net/eth0"), want: "netdev-elsewhere", mend: "nsenter"},
		{name: "a container with its own network", bed: dockerShared(), change: remove(eth), want: "netdev-elsewhere", mend: "docker run --network host"},

		{name: "the interface is down", bed: laptopWithRXE(), change: func(b *bed) {
			b.set(map[string]string{rxe0 + "/state": "1: DOWN", rxe0 + "/phys_state": "3: Disabled", "/sys/class/net/eth0/flags": "0x1002", "/sys/class/net/eth0/carrier": "0"})
			b.gid("rxe0", 1, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
		}, want: "netdev-down", seen: "/sys/class/net/eth0/flags", mend: "ip link set dev eth0 up"},
		{name: "one end of a veth pair is down", bed: rigRXE(), change: func(b *bed) {
			for i := range 2 {
				port := fmt.Sprintf("/sys/class/infiniband/rxe%d/ports/1", i)
				b.set(map[string]string{port + "/state": "1: DOWN", port + "/phys_state": "3: Disabled", fmt.Sprintf("/sys/class/net/veth%d/carrier", i): "0"})
			}
			b.files["/sys/class/net/veth0/flags"] = "0x1002"
		}, want: "netdev-down", mend: "ip link set dev veth0 up"},
		{name: "no cable", bed: roce(), change: func(b *bed) {
			b.set(map[string]string{ib0 + "/state": "1: DOWN", ib0 + "/phys_state": "2: Polling", eth + "/carrier": "0"})
		}, want: "no-carrier", seen: eth + "/carrier", mend: "cable"},
		{name: "a port down for no reason", bed: roce(), change: set(ib0+"/state", "1: DOWN"), want: "port-down", mend: "ip link set dev ens1f0np0 down"},
		{name: "an InfiniBand port was disabled", bed: infiniBand(), change: state("1: DOWN", "3: Disabled", "0x0"), device: "mlx5_0", want: "port-disabled", mend: "ibportstate -C mlx5_0"},
		{name: "no InfiniBand cable", bed: infiniBand(), change: state("1: DOWN", "2: Polling", "0x0"), device: "mlx5_0", want: "no-link", mend: "cable"},
		{name: "training", bed: infiniBand(), change: state("1: DOWN", "4: PortConfigurationTraining", "0x0"), device: "mlx5_0", want: "link-training", mend: "cable"},
		{name: "error recovery", bed: infiniBand(), change: state("1: DOWN", "6: LinkErrorRecovery", "0x0"), device: "mlx5_0", want: "link-recovery", mend: "cable"},
		{name: "no subnet manager", bed: infiniBand(), change: state("2: INIT", "5: LinkUp", "0x0"), device: "mlx5_0", want: "no-subnet-manager", seen: ib0 + "/sm_lid", mend: "systemctl start opensm"},
		{name: "armed", bed: infiniBand(), change: state("3: ARMED", "5: LinkUp", "0x1"), device: "mlx5_0", want: "port-armed", mend: "sminfo"},
		{name: "an InfiniBand port down", bed: infiniBand(), change: state("1: DOWN", "5: LinkUp", "0x1"), device: "mlx5_0", want: "port-down", mend: "dmesg"},
		{name: "one lane", bed: infiniBand(), change: set(ib0+"/rate", "25 Gb/sec (1X EDR)"), device: "mlx5_0", want: "link-narrow", seen: ib0 + "/rate", mend: "cable"},
		{name: "one lane of NDR", bed: infiniBand(), change: set(ib0+"/rate", "100 Gb/sec (1X NDR)"), device: "mlx5_0"},
		{name: "a slow link", bed: infiniBand(), change: set(ib0+"/rate", "10 Gb/sec (4X SDR)"), device: "mlx5_0", want: "link-slow", mend: "cable"},
		{name: "a slow Ethernet link", bed: roce(), change: func(b *bed) { b.speeds["ens1f0np0"] = [2]int{10000, 100000} }, want: "ethernet-slow", seen: "ethtool ens1f0np0", mend: "ethtool -s ens1f0np0 autoneg on speed 100000"},
		{name: "a small MTU", bed: roce(), change: func(b *bed) {
			b.files[eth+"/mtu"] = "1000"
			b.answers["mlx5_0"] = Answer{Ports: []PortAnswer{{512, 4096}}}
		}, want: "mtu-low", seen: eth + "/mtu", mend: "ip link set dev ens1f0np0 mtu 1500"},
		{name: "the MTU is behind", bed: roce(), change: func(b *bed) { b.answers["mlx5_0"] = Answer{Ports: []PortAnswer{{1024, 4096}}} }, want: "mtu-behind", mend: "ip link set"},
		{name: "a small MTU of the subnet", bed: infiniBand(), device: "mlx5_0", change: func(b *bed) { b.answers["mlx5_0"] = Answer{Ports: []PortAnswer{{1024, 4096}}} }, want: "mtu-subnet", mend: "subnet manager"},

		{name: "no address", bed: laptopWithRXE(), change: func(b *bed) {
			b.addrs["eth0"] = []string{"fe80::c3f:e7ff:fe59:d3a0/64"}
			b.gid("rxe0", 1, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
		}, want: "address-missing", seen: rxe0 + "/gids", mend: "ip address add ADDRESS/PREFIX dev eth0"},
		{name: "no GIDs", bed: laptopWithRXE(), change: func(b *bed) {
			b.addrs["eth0"] = nil
			b.remove(rxe0 + "/gids")
		}, want: "address-missing", mend: "ip address add"},
		{name: "the second port has no address", bed: rigRXE(), change: func(b *bed) {
			b.addrs["veth1"] = nil
			b.gid("rxe1", 1, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
		}, want: "address-spare", mend: "ip address add ADDRESS/PREFIX dev veth1"},
		{name: "the address isn't in the GID table", bed: laptopWithRXE(), change: func(b *bed) {
			b.gid("rxe0", 1, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
		}, want: "gid-missing", mend: "ip address delete 192.168.77.1/24 dev eth0 && ip address add 192.168.77.1/24 dev eth0"},
		{name: "rxe on a port of a bridge", bed: laptopWithRXE(), change: func(b *bed) {
			b.addrs["eth0"], b.addrs["br0"] = nil, []string{"192.168.77.1/24"}
			b.set(map[string]string{"/sys/class/net/eth0/master": "-> ../br0", "/sys/class/net/br0/bridge/x": ""})
		}, want: "rxe-below", seen: "/sys/class/net/eth0/master", mend: "ibv link delete rxe0 && ibv link add rxe0 type rxe netdev br0"},
		{name: "a card on a port of a bridge", bed: roce(), change: func(b *bed) {
			b.addrs["ens1f0np0"], b.addrs["br0"] = nil, []string{"10.1.2.3/24"}
			b.set(map[string]string{eth + "/master": "-> ../br0", "/sys/class/net/br0/bridge/x": ""})
		}},
		{name: "RoCE v1 only", bed: roce(), change: func(b *bed) {
			for _, i := range []int{1, 3, 5} {
				b.gid("mlx5_0", i, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
			}
		}, want: "gid-v1-only", seen: ib0 + "/gid_attrs/types/0", mend: "RoCE v2"},
		{name: "programs disagree on the GID", bed: roce(), change: func(b *bed) {
			b.gid("mlx5_0", 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
			b.gid("mlx5_0", 3, mapped("169.254.7.7"), rocev2, "ens1f0np0")
			b.gid("mlx5_0", 7, mapped("10.1.2.3"), rocev2, "ens1f0np0")
		}, want: "gid-choice", seen: ib0 + "/gids/7", mend: "export NCCL_IB_GID_INDEX=7"},
		{name: "no partition", bed: infiniBand(), device: "mlx5_0", change: set(ib0+"/pkeys/0", "0x0000"), want: "pkey-none", seen: ib0 + "/pkeys/0", mend: "partitions.conf"},
		{name: "a limited member", bed: infiniBand(), device: "mlx5_0", change: set(ib0+"/pkeys/0", "0x7fff"), want: "pkey-limited", mend: "partitions.conf"},
		{name: "the connection manager uses RoCE v1", bed: roce(), change: set("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1"), want: "rdma-cm-roce-v1",
			mend: "echo 'RoCE v2' > /sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode"},
		{name: "rxe on a port of a bond", bed: laptopWithRXE(), change: func(b *bed) {
			b.set(map[string]string{"/sys/class/net/eth0/master": "-> ../bond0", "/sys/class/net/bond0/bonding/mode": "active-backup 1"})
		}, want: "rxe-below", mend: "ibv link delete rxe0 && ibv link add rxe0 type rxe netdev bond0"},
		{name: "a bond that RDMA can't use", bed: bonded(), change: set("/sys/class/net/bond0/bonding/mode", "balance-rr 0"), want: "bond-mode", seen: "/sys/class/net/bond0/bonding/mode", mend: "802.3ad"},
		{name: "a bond of two devices", bed: roce(), device: "mlx5_0", change: func(b *bed) {
			b.mlx5("mlx5_1", 1, "Ethernet")
			b.netDev("ens1f1np1", 4)
			b.set(map[string]string{"/sys/class/net/bond0/bonding/mode": "802.3ad 4", eth + "/master": "-> ../bond0", "/sys/class/net/ens1f1np1/master": "-> ../bond0",
				"/sys/devices/pci0000:00/0000:00:07.0/0000:02:00.0/net/ens1f1np1/x": ""})
		}, want: "bond-split", mend: "mlx5_bond_0"},

		{name: "PCIe with half the lanes", bed: roce(), change: set(pciCard+"/current_link_width", "8"), want: "pcie-degraded", seen: "/sys/class/infiniband/mlx5_0/device/current_link_width", mend: "slot"},
		{name: "PCIe at a lower speed", bed: roce(), change: set(pciCard+"/current_link_speed", "2.5 GT/s PCIe"), want: "pcie-degraded", mend: "slot"},
		{name: "a narrow slot", bed: roce(), change: func(b *bed) {
			b.files[pciCard+"/current_link_width"] = "8"
			b.files["/sys/devices/pci0000:00/0000:00:06.0/max_link_width"] = "8"
		}, want: "pcie-slot", mend: "slot"},
		{name: "small read requests", bed: roce(), change: set(pciCard+"/config", config(0x0810)), want: "max-read-request", mend: "setpci -s 0000:01:00.0 CAP_EXP+8.w=5000:7000"},
		{name: "no relaxed ordering", bed: roce(), change: set(pciCard+"/config", config(0x5800)), want: "relaxed-ordering", mend: "setpci -s 0000:01:00.0 CAP_EXP+8.w=10:10"},
		{name: "far from the card", bed: roce(), change: set("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3,5"), want: "numa-remote", mend: "taskset -cp 8-15 $$"},
		{name: "the IOMMU translates", bed: roce(), change: set(pciCard+"/iommu_group/type", "DMA-FQ"), want: "iommu", mend: "iommu=pt"},
		{name: "ACS between card and GPU", bed: roce(), change: atSwitch(0x1d, 0x1d, "0x030200"), want: "pcie-acs", seen: switchPort(8) + "/config", mend: "setpci -s 0000:02:08.0 ECAP_ACS+6.w=0000\nsetpci -s 0000:02:10.0 ECAP_ACS+6.w=0000"},
		{name: "ACS at the disk's end", bed: roce(), change: atSwitch(0x01, 0x04, "0x010802"), want: "pcie-acs", seen: switchPort(16) + "/config", mend: "virtual machines"},
		{name: "ACS that redirects nothing", bed: roce(), change: atSwitch(0x01, 0x00, "0x030200")},
		{name: "ACS between card and another card", bed: roce(), change: atSwitch(0x1d, 0x1d, "0x020000")},
		{name: "ACS of root ports", bed: roce(), change: func(b *bed) {
			b.set(map[string]string{"/sys/devices/pci0000:00/0000:00:06.0/config": acsConfig(0x1d), "/sys/devices/pci0000:00/0000:00:07.0/0000:02:00.0/class": "0x030000",
				"/sys/bus/pci/devices/0000:02:00.0": "-> ../../../devices/pci0000:00/0000:00:07.0/0000:02:00.0", "/sys/devices/pci0000:00/0000:00:07.0/config": acsConfig(0x1d)})
		}},
		{name: "no GPU memory", bed: roce(), change: set("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05"), want: "gpu-memory", mend: "modprobe nvidia-peermem"},
		{name: "no huge pages left", bed: roce(), change: set("/proc/meminfo", "HugePages_Total:      64\nHugePages_Free:        0"), want: "huge-pages", mend: "sysctl vm.nr_hugepages"},
		{name: "on-demand paging of rxe", bed: laptopWithRXE(), change: func(b *bed) {
			b.files["/proc/sys/kernel/osrelease"] = "7.2.12+deb13-amd64"
			b.answers["rxe0"] = Answer{Ports: []PortAnswer{{1024, 4096}}, ODP: true}
		}, want: "rxe-odp", mend: "on-demand"},
		{name: "old firmware", bed: roce(), change: set("/sys/class/infiniband/mlx5_0/fw_ver", "20.26.1040"), want: "firmware-old", seen: "/sys/class/infiniband/mlx5_0/fw_ver", mend: "mlxup"},
		{name: "new firmware", bed: roce(), change: set("/sys/class/infiniband/mlx5_0/fw_ver", "32.41.1000")},
		{name: "renamed by udev", bed: roce(), change: func(b *bed) {
			for path, value := range b.files {
				if strings.HasPrefix(path, "/sys/class/infiniband/mlx5_0/") {
					b.files[strings.Replace(path, "mlx5_0", "rocep1s0", 1)] = value
				}
			}
			b.remove("/sys/class/infiniband/mlx5_0")
			b.files["/sys/class/infiniband_verbs/uverbs0/ibdev"] = "rocep1s0"
			b.answers["rocep1s0"] = b.answers["mlx5_0"]
		}, want: "device-renamed", mend: "NCCL_IB_HCA=mlx5_0"},

		{name: "lost packets", bed: roce(), meantime: map[string]string{ib0 + "/hw_counters/local_ack_timeout_err": "14"}, want: "retransmissions", seen: ib0 + "/hw_counters/local_ack_timeout_err", mend: "--peer"},
		{name: "lost packets, rxe", bed: laptopWithRXE(), meantime: map[string]string{rxe0 + "/hw_counters/completer_retry_err": "9"}, want: "retransmissions", mend: "--peer"},
		{name: "no receives, rxe", bed: laptopWithRXE(), meantime: map[string]string{rxe0 + "/hw_counters/rcvd_rnr_err": "99", rxe0 + "/hw_counters/completer_retry_err": "9"}, want: "receiver-not-ready", mend: "receives"},
		{name: "packets out of order", bed: roce(), meantime: map[string]string{ib0 + "/hw_counters/out_of_sequence": "13"}, want: "out-of-sequence", mend: "PFC"},
		{name: "no receives", bed: roce(), meantime: map[string]string{ib0 + "/hw_counters/rnr_nak_retry_err": "13", ib0 + "/hw_counters/out_of_buffer": "13"}, want: "receiver-not-ready", mend: "receives"},
		{name: "symbol errors", bed: infiniBand(), device: "mlx5_0", meantime: map[string]string{ib0 + "/counters/symbol_error": "4"}, want: "symbol-errors", mend: "cable"},
		{name: "the link flaps", bed: infiniBand(), device: "mlx5_0", meantime: map[string]string{ib0 + "/counters/link_downed": "4"}, want: "link-flaps", mend: "cable"},
		{name: "discards", bed: roce(), meantime: map[string]string{ib0 + "/counters/port_xmit_discards": "4"}, want: "discards", mend: "PFC"},
		{name: "pause frames", bed: roce(), meantime: map[string]string{"ethtool rx_prio3_pause": "5"}, want: "pause", seen: "ethtool -S ens1f0np0", mend: "slow"},
		{name: "congestion", bed: roce(), meantime: map[string]string{ib0 + "/hw_counters/np_cnp_sent": "99"}, want: "congestion", mend: "congested"},
		{name: "mere traffic", bed: infiniBand(), device: "mlx5_0", meantime: map[string]string{ib0 + "/counters/port_rcv_data": "99999"}},
	}
}

// ofHealthy are the notes that healthy hosts have: see TestHealthy.
var ofHealthy = []string{"rxe-two-devices", "port-spare", "no-provider-here"}

// Each fault is found, with the right cause and no other.
func TestFaults(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range faults() {
		seen[f.want] = true
		t.Run(f.name, func(t *testing.T) {
			if f.change != nil {
				f.change(f.bed)
			}
			h := f.bed.host(t)
			r := Examine(h, Options{Device: f.device, Sleep: func(time.Duration) {
				for path, value := range f.meantime {
					if name, ok := strings.CutPrefix(path, "ethtool "); ok {
						f.bed.stats["ens1f0np0"] = map[string]uint64{name: 5}
						continue
					}
					f.bed.write(t, h.Root, path, value)
				}
			}})
			complete(t, r)
			var found []Finding
			for _, x := range r.Findings {
				if x.ID == f.want || !slices.Contains(ofHealthy, x.ID) {
					found = append(found, x)
				}
			}
			if f.want == "" {
				if len(found) > 0 {
					t.Errorf("found %+v, want nothing", found)
				}
				return
			}
			if len(found) != 1 || found[0].ID != f.want {
				t.Fatalf("found %+v, want %s only", found, f.want)
			}
			got := found[0]
			if r.Healthy() != got.Note {
				t.Errorf("healthy %v", r.Healthy())
			}
			if !slices.ContainsFunc(got.Evidence, func(e Evidence) bool { return f.seen == "" || e.Source == f.seen }) {
				t.Errorf("evidence %v, want %s among it", got.Evidence, f.seen)
			}
			if all := strings.Join(append(got.Mend, got.Advice), "\n"); !strings.Contains(all, f.mend) {
				t.Errorf("mended by %q, want %q", all, f.mend)
			}
		})
	}
	for _, k := range Kinds {
		if !seen[k.ID] && !slices.Contains(ofHealthy, k.ID) && !strings.HasPrefix(k.ID, "peer-") { // TestPeer has those
			t.Errorf("no fault leads to %s", k.ID)
		}
	}
}
