package doctor

import (
	"path"
	"slices"
	"strings"
)

// cardModules are the modules for PCI devices whose only purpose is RDMA, or that are sold
// for it. They are the tables of PCI IDs of the kernel's drivers
// (drivers/net/ethernet/mellanox/mlx{4,5}/core/main.c, drivers/infiniband/hw/…), by vendor
// and the first digits of the device's ID.
var cardModules = []struct{ vendor, device, module string }{
	{"0x15b3", "0x1002", "mlx4_core"}, {"0x15b3", "0x1003", "mlx4_core"}, {"0x15b3", "0x1004", "mlx4_core"}, {"0x15b3", "0x1007", "mlx4_core"},
	{"0x15b3", "0x1010", "mlx4_core"}, {"0x15b3", "0x101", "mlx5_core"}, {"0x15b3", "0x102", "mlx5_core"}, {"0x15b3", "0xa2d", "mlx5_core"},
	{"0x1d0f", "0xefa", "efa"},
	{"0x1ded", "0x107f", "erdma"},
	{"0x8086", "0x24f0", "hfi1"}, {"0x8086", "0x24f1", "hfi1"},
	{"0x15ad", "0x0820", "vmw_pvrdma"},
}

// rdmaHalves are the modules with the RDMA half of drivers that consist of two modules: by
// the name of the auxiliary device that the first half makes for the second
// (MODULE_DEVICE_TABLE(auxiliary, …) in the second half).
var rdmaHalves = []half{
	{"mlx5_core.rdma", "mlx5_ib"},
	{"mlx4_core.ib", "mlx4_ib"},
	{"ice.roce", "irdma"},
	{"ice.iwarp", "irdma"},
	{"i40e.iwarp", "irdma"},
	{"idpf.8086.rdma", "irdma"},
	{"bnxt_en.rdma", "bnxt_re"},
	{"mana.rdma", "mana_ib"},
	{"ionic.rdma", "ionic_rdma"},
}

type half struct{ device, module string }

// loaded reports whether a module is loaded, or built in.
func (h *Host) loaded(module string) bool { return h.has("/sys/module/" + module) }

// cards checks that each card has its drivers.
func (e *exam) cards() {
	h := e.host
	const pci = "/sys/bus/pci/devices"
	for _, address := range h.list(pci) {
		dir := path.Join(pci, address)
		class := h.read(dir + "/class")
		if !strings.HasPrefix(class, "0x02") || h.target(dir+"/driver") != "" {
			continue
		}
		vendor, id := h.read(dir+"/vendor"), h.read(dir+"/device")
		for _, c := range cardModules {
			if c.vendor != vendor || !strings.HasPrefix(id, c.device) {
				continue
			}
			if h.loaded(c.module) {
				f := e.add(cardUnbound, "%s is loaded, but doesn't drive the RDMA card %s", c.module, address)
				f.evidence(dir+"/driver", "does not exist")
				f.evidence("/sys/module/"+c.module, "exists")
				f.mend("echo %s > /sys/bus/pci/drivers_probe", address)
				f.Advice = "If that fails, the kernel's log says why: dmesg | grep " + address
			} else {
				f := e.add(driverMissing, "the RDMA card %s has no driver: the module %s isn't loaded", address, c.module)
				f.evidence(dir+"/vendor", vendor).evidence(dir+"/device", id)
				f.evidence("/sys/module/"+c.module, "does not exist")
				f.mend("modprobe %s", c.module)
				// udev loads the RDMA half, where it runs.
				if i := slices.IndexFunc(rdmaHalves, func(h half) bool { return strings.HasPrefix(h.device, c.module+".") }); i >= 0 {
					f.mend("modprobe %s", rdmaHalves[i].module)
				}
			}
			break
		}
	}

	const auxiliary = "/sys/bus/auxiliary/devices"
	var missing []string
	for _, name := range h.list(auxiliary) {
		for _, half := range rdmaHalves {
			if !strings.HasPrefix(name, half.device+".") || h.target(path.Join(auxiliary, name, "driver")) != "" {
				continue
			}
			if h.loaded(half.module) {
				f := e.add(halfUnbound, "%s is loaded, but doesn't drive %s", half.module, name)
				f.evidence(path.Join(auxiliary, name, "driver"), "does not exist")
				f.mend("rmmod %s && modprobe %[1]s", half.module)
				f.Advice = "If that fails, the kernel's log says why: dmesg | grep " + half.module
			} else if !slices.Contains(missing, half.module) {
				missing = append(missing, half.module)
				k := halfMissing
				if len(e.all) > 0 && half.module != "mlx5_ib" {
					k = halfSpare
				}
				f := e.add(k, "the driver's RDMA half isn't loaded: the module %s", half.module)
				f.evidence(path.Join(auxiliary, name, "driver"), "does not exist")
				f.evidence("/sys/module/"+half.module, "does not exist")
				f.mend("modprobe %s", half.module)
			}
		}
	}
}

// noDevices reports that the kernel has no RDMA device, and no card without driver.
func (e *exam) noDevices() {
	h := e.host
	const mode = "/sys/module/ib_core/parameters/netns_mode"
	if h.read(mode) == "N" {
		f := e.add(netnsExclusive, "this network namespace has no RDMA device, and the host's devices aren't shared between namespaces")
		f.evidence(mode, "N").evidence("/sys/class/infiniband", "is empty")
		f.mend("ibv system set netns shared")
		f.Advice = "Run this on the host while no container runs, or give the device to this namespace: ibv dev set DEVICE netns NAME."
		return
	}
	f := e.add(noDevice, "the kernel has no RDMA device, and the host no RDMA card that is known")
	f.evidence("/sys/class/infiniband", "is empty or does not exist")
	if c := h.container(); c != "" {
		f.Advice = "If the host has devices, the container needs its /sys, and the nodes in /dev/infiniband."
		return
	}
	if n := h.ethernet(); n != "" {
		if !h.loaded("rdma_rxe") {
			f.mend("modprobe rdma_rxe")
		}
		f.mend("ibv link add rxe0 type rxe netdev %s", n)
		f.Advice = "This makes a software device (Soft-RoCE) on " + n + "."
		return
	}
	f.Advice = "A software device (Soft-RoCE) needs an Ethernet interface with an address."
}

// ethernet returns an Ethernet interface with an address: a card if there is one, and
// a wireless interface only if there is no other.
func (h *Host) ethernet() string {
	found, rank := "", 0
	for _, n := range h.list("/sys/class/net") {
		dir := "/sys/class/net/" + n
		if h.read(dir+"/type") != "1" || len(h.reachable(n)) == 0 {
			continue
		}
		r := 2
		switch {
		case h.has(dir + "/phy80211"):
			r = 1
		case h.has(dir + "/device"):
			r = 3
		}
		if r > rank {
			found, rank = n, r
		}
	}
	return found
}

// uverbs checks the module ib_uverbs, which programs use.
func (e *exam) uverbs() {
	if e.host.has("/sys/class/infiniband_verbs") {
		return
	}
	f := e.add(uverbsMissing, "the module ib_uverbs isn't loaded")
	f.evidence("/sys/class/infiniband_verbs", "does not exist")
	f.mend("modprobe ib_uverbs")
}
