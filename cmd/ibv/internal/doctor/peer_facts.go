package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Facts are the settings that two ends compare.
type Facts struct {
	Device       string   `json:"device"`
	Port         int      `json:"port"`
	LinkLayer    string   `json:"link_layer"`
	NetDev       string   `json:"netdev,omitempty"`
	GIDIndex     int      `json:"gid_index"`
	GID          string   `json:"gid"`
	GIDType      string   `json:"gid_type"`
	VLAN         int      `json:"vlan,omitempty"`
	ActiveMTU    int      `json:"active_mtu"`
	PKeys        []uint16 `json:"pkeys"`
	TrafficClass int      `json:"traffic_class"`
	GIDs         []int    `json:"gids"` // the indices of all GIDs
}

// facts returns the facts about a device's first active port, with the given GID. If gidIndex is negative, it
// takes the GID that a program should take.
func (h *Host) facts(name string, gidIndex int) (Facts, error) {
	for _, d := range h.devices() {
		if name != "" && d.name != name && !slices.Contains(d.netDevs(), name) {
			continue
		}
		for _, p := range d.ports {
			if p.active() {
				return h.portFacts(p, gidIndex)
			}
		}
	}
	if name == "" {
		return Facts{}, fmt.Errorf("no device has an active port")
	}
	return Facts{}, fmt.Errorf("%s is no device with an active port", name)
}

func (h *Host) portFacts(p *port, gidIndex int) (Facts, error) {
	table := p.table
	if !p.ethernet {
		table = h.gidTable(p.sys)
	}
	if len(table) == 0 {
		return Facts{}, fmt.Errorf("port %d of %s has no GID", p.number, p.dev.name)
	}
	if gidIndex < 0 {
		gidIndex = choose(table).Take
		if !p.ethernet {
			gidIndex = table[0].index
		}
	}
	f := Facts{Device: p.dev.name, Port: p.number, LinkLayer: p.link, NetDev: p.netDev, GIDIndex: gidIndex, PKeys: []uint16{}}
	for _, g := range table {
		f.GIDs = append(f.GIDs, g.index)
		if g.index == gidIndex {
			f.GID, f.GIDType = g.addr.String(), g.typ
			if !p.ethernet {
				f.GIDType = p.link // sysfs has the same type for InfiniBand and RoCE v1
			}
			if g.netDev != "" {
				f.NetDev = g.netDev
			}
		}
	}
	if f.GID == "" {
		return Facts{}, fmt.Errorf("port %d of %s has no GID index %d", p.number, p.dev.name, gidIndex)
	}
	if f.NetDev != "" {
		f.VLAN = h.VLAN(f.NetDev)
	}
	a, err := h.Query(p.dev.name)
	if err != nil {
		return Facts{}, err
	}
	if p.number <= len(a.Ports) {
		f.ActiveMTU = a.Ports[p.number-1].ActiveMTU
	}
	for _, n := range h.list(p.sys + "/pkeys") {
		if key, err := strconv.ParseUint(h.read(p.sys+"/pkeys/"+n), 0, 16); err == nil && key&0x7fff != 0 {
			f.PKeys = append(f.PKeys, uint16(key))
		}
	}
	f.TrafficClass = h.trafficClass(p)
	return f, nil
}

// trafficClass returns the traffic class that is configured for a port: of the
// connection manager, or of all queue pairs, which only NVIDIA's driver has.
func (h *Host) trafficClass(p *port) int {
	all := h.read(fmt.Sprintf("/sys/class/infiniband/%s/tc/%d/traffic_class", p.dev.name, p.number))
	if _, value, ok := strings.Cut(all, "tclass="); ok {
		all = value
	}
	if n, err := strconv.Atoi(strings.TrimSpace(all)); err == nil {
		return n
	}
	n, _ := h.number(fmt.Sprintf("/sys/kernel/config/rdma_cm/%s/ports/%d/default_roce_tos", p.dev.name, p.number))
	return n
}

// compare adds findings about settings that differ between the ends. It reports
// whether the ends may reach each other nevertheless.
func (r *Report) compare(here, there Facts) bool {
	differ := func(k *Kind, what string, of func(Facts) string) *Finding {
		f := r.add(k, "%s", what)
		f.evidence("here, "+here.Device, of(here))
		return f.evidence("there, "+there.Device, of(there))
	}
	gid := func(f Facts) string { return fmt.Sprintf("GID index %d: %s, %s", f.GIDIndex, f.GID, f.GIDType) }
	a, _ := netip.ParseAddr(here.GID)
	b, _ := netip.ParseAddr(there.GID)
	switch ethernet := here.LinkLayer == "Ethernet"; {
	case here.LinkLayer != there.LinkLayer:
		f := differ(peerLink, "one end is on InfiniBand, the other on Ethernet", func(f Facts) string { return f.LinkLayer })
		f.Advice = "Name the device at each end: ibv doctor --peer HOST DEVICE, ibv doctor --serve DEVICE."
		return false
	case ethernet && here.GIDType != there.GIDType:
		f := differ(peerGIDType, "the ends use different versions of RoCE", gid)
		f.Advice = "Choose GIDs of the same type with -g, at both ends: ibv info -v lists them."
		return false
	case ethernet && a.Is4() != b.Is4():
		f := differ(peerFamily, "one end's GID is an IPv4 address, the other's is IPv6", gid)
		f.Advice = "Choose GIDs of the same family with -g, at both ends: ibv info -v lists them."
		return false
	case ethernet && here.VLAN != there.VLAN:
		f := differ(peerVLAN, "the GIDs are in different VLANs", func(f Facts) string { return fmt.Sprintf("VLAN %d on %s", f.VLAN, f.NetDev) })
		f.Advice = "Choose GIDs of the same VLAN with -g. VLAN 0 stands for none."
		return false
	case !ethernet && !partners(here.PKeys, there.PKeys):
		f := differ(peerPKey, "the ends have no partition in common, or are both limited members", func(f Facts) string { return fmt.Sprintf("P_Keys %#04x", f.PKeys) })
		f.Advice = "The subnet manager assigns partitions: partitions.conf of opensm."
		return false
	case !ethernet && [8]byte(as16(a)[:8]) != [8]byte(as16(b)[:8]):
		differ(peerSubnet, "the ends are in different InfiniBand subnets", gid)
	}
	if here.ActiveMTU != there.ActiveMTU {
		f := differ(peerMTU, fmt.Sprintf("the active MTU is %d here, and %d there", here.ActiveMTU, there.ActiveMTU), func(f Facts) string { return strconv.Itoa(f.ActiveMTU) })
		low, where := here, "here"
		if there.ActiveMTU < here.ActiveMTU {
			low, where = there, "there"
		}
		f.Advice = "Programs that take the smaller MTU of both ends work."
		if low.NetDev != "" {
			f.mend("ip link set dev %s mtu %d", low.NetDev, max(here.ActiveMTU, there.ActiveMTU)+roceHeaders+4)
			f.Advice = "The command is for the end " + where + ". The switches must carry such packets."
		}
	}
	if here.TrafficClass != there.TrafficClass {
		differ(peerTrafficClass, "the ends use different traffic classes", func(f Facts) string { return strconv.Itoa(f.TrafficClass) })
	}
	return true
}

func as16(a netip.Addr) []byte {
	b := a.As16()
	return b[:]
}

// partners reports whether two ports have a partition in common of which at least one is a full
// member.
func partners(a, b []uint16) bool {
	for _, x := range a {
		for _, y := range b {
			if x&0x7fff == y&0x7fff && (x|y)&0x8000 != 0 {
				return true
			}
		}
	}
	return false
}

// Limits of a peer's facts, because commands for the user contain them.
const (
	mostGIDs   = 1024
	longName   = 64
	nameLetter = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:@-"
)

// isName reports whether s can be the name of a device or of a network interface.
func isName(s string) bool {
	return s != "" && len(s) <= longName && s[0] != '-' && strings.Trim(s, nameLetter) == ""
}

// check checks the facts of a peer.
func (f *Facts) check() error {
	addr, err := netip.ParseAddr(f.GID)
	switch {
	case err != nil || addr.Zone() != "":
		return fmt.Errorf("%.64q is not a GID", f.GID)
	case !isName(f.Device) || f.NetDev != "" && !isName(f.NetDev):
		return fmt.Errorf("%.64q on %.64q is not the name of a device and of a network interface", f.Device, f.NetDev)
	case !isName(f.LinkLayer) || len(f.GIDType) > longName:
		return fmt.Errorf("%.64q with %.64q is not a link layer", f.LinkLayer, f.GIDType)
	case f.ActiveMTU != 0 && (f.ActiveMTU < 256 || f.ActiveMTU > 4096):
		return fmt.Errorf("the MTU is %d", f.ActiveMTU)
	case len(f.GIDs) > mostGIDs || len(f.PKeys) > mostGIDs:
		return fmt.Errorf("there are %d GIDs and %d P_Keys", len(f.GIDs), len(f.PKeys))
	case f.Port < 1 || f.Port > 255 || slices.ContainsFunc(append(f.GIDs[:len(f.GIDs):len(f.GIDs)], f.GIDIndex), func(i int) bool { return i < 0 || i >= mostGIDs }):
		return fmt.Errorf("port %d, with the GID at index %d, doesn't exist", f.Port, f.GIDIndex)
	}
	return nil
}
