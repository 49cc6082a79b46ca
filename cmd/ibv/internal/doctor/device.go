package doctor

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A device is an RDMA device of the kernel.
type device struct {
	host   *Host
	name   string
	sys    string // its directory
	uverbs string // "uverbs0", or "" without ib_uverbs
	driver string // "rxe", or the PCI driver, such as "mlx5_core"
	iwarp  bool   // iWARP has neither GIDs of addresses nor MTUs of packets
	cm     bool   // the connection manager serves it
	pci    string // its directory, "" without one
	ports  []*port
	answer *Answer // nil if the device can't be opened
}

// A port is a port of a device.
type port struct {
	dev      *device
	number   int
	sys      string // its directory
	link     string // "InfiniBand" or "Ethernet"
	ethernet bool
	state    string // "4: ACTIVE"
	phys     string // "5: LinkUp"
	rate     string // "100 Gb/sec (4X EDR)"
	netDev   string
	table    []gid
}

// devices reads the kernel's devices.
func (h *Host) devices() []*device {
	var all []*device
	for _, name := range h.list("/sys/class/infiniband") {
		d := &device{host: h, name: name, sys: "/sys/class/infiniband/" + name}
		node := h.read(d.sys + "/node_type")
		d.iwarp = strings.HasPrefix(node, "4:")         // RDMA_NODE_RNIC
		d.cm = d.iwarp || strings.HasPrefix(node, "1:") // RDMA_NODE_IB_CA
		if driver := h.target(d.sys + "/device/driver"); driver != "" {
			d.driver = driver
			if h.has(d.sys + "/device/vendor") {
				d.pci = d.sys + "/device"
			}
		} else if h.has(d.sys + "/parent") {
			d.driver = "rxe"
		}
		for _, u := range h.list("/sys/class/infiniband_verbs") {
			if h.read("/sys/class/infiniband_verbs/"+u+"/ibdev") == name {
				d.uverbs = u
			}
		}
		for _, n := range h.list(d.sys + "/ports") {
			if number, err := strconv.Atoi(n); err == nil {
				d.ports = append(d.ports, d.port(number))
			}
		}
		all = append(all, d)
	}
	return all
}

func (d *device) port(number int) *port {
	h := d.host
	p := &port{dev: d, number: number, sys: fmt.Sprintf("%s/ports/%d", d.sys, number)}
	p.link = h.read(p.sys + "/link_layer")
	p.ethernet = p.link == "Ethernet"
	p.state, p.phys, p.rate = h.read(p.sys+"/state"), h.read(p.sys+"/phys_state"), h.read(p.sys+"/rate")
	if p.ethernet {
		p.table = h.gidTable(p.sys)
		p.netDev = d.netDevOf(p)
	}
	return p
}

// netDevOf returns the network interface of an Ethernet port: the interface below a software
// device, the interface of the port's default GIDs, or the only interface of the PCI function.
func (d *device) netDevOf(p *port) string {
	h := d.host
	if parent := h.read(d.sys + "/parent"); parent != "" {
		return parent
	}
	for _, g := range p.table {
		if g.netDev != "" && h.target("/sys/class/net/"+g.netDev+"/device") != "" {
			return g.netDev
		}
	}
	var own []string
	for _, n := range h.list(d.sys + "/device/net") {
		port, ok := h.number("/sys/class/net/" + n + "/dev_port")
		if !ok || port == p.number-1 || len(h.list(d.sys+"/device/net")) == 1 {
			own = append(own, n)
		}
	}
	if len(own) > 0 {
		return own[0]
	}
	for _, g := range p.table {
		if g.netDev != "" {
			return g.netDev
		}
	}
	return ""
}

// netDevs returns the network interfaces of the device.
func (d *device) netDevs() []string {
	var names []string
	for _, p := range d.ports {
		if p.netDev != "" {
			names = append(names, p.netDev)
		}
		for _, g := range p.table {
			if g.netDev != "" {
				names = append(names, g.netDev)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (d *device) summary() Summary {
	s := Summary{Name: d.name, Driver: d.driver, FW: d.host.read(d.sys + "/fw_ver"), Ports: []PortSummary{}}
	for _, p := range d.ports {
		ps := PortSummary{Port: p.number, LinkLayer: p.link, State: p.word(p.state), Rate: p.rate, NetDev: p.netDev}
		if p.ethernet && !d.iwarp && p.active() {
			ps.GID = choose(p.table)
		}
		if a := p.answer(); a != nil {
			ps.ActiveMTU = a.ActiveMTU
		}
		s.Ports = append(s.Ports, ps)
	}
	return s
}

// word returns "ACTIVE" of "4: ACTIVE".
func (p *port) word(s string) string {
	_, word, _ := strings.Cut(s, ": ")
	return word
}

func (p *port) active() bool { return p.word(p.state) == "ACTIVE" }

// answer returns the kernel's answer about the port, or nil.
func (p *port) answer() *PortAnswer {
	if a := p.dev.answer; a != nil && p.number <= len(a.Ports) {
		return &a.Ports[p.number-1]
	}
	return nil
}

// net returns the path of a file of the port's network interface.
func (p *port) net(file string) string { return path.Join("/sys/class/net", p.netDev, file) }

// reachable returns the addresses of a network interface that aren't link-local.
func (h *Host) reachable(netDev string) []netip.Prefix {
	var some []netip.Prefix
	for _, a := range h.Addrs(netDev) {
		if !a.Addr().IsLinkLocalUnicast() {
			some = append(some, a)
		}
	}
	return some
}
