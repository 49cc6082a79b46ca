package doctor

import (
	"net/netip"
	"slices"
	"sort"
	"strconv"
)

// A gid is an entry of a port's GID table.
type gid struct {
	index  int
	addr   netip.Addr // IPv4 if the GID encodes an IPv4 address
	typ    string     // as in sysfs
	netDev string     // "" if there is none, or it is in another network namespace
}

// The types of GIDs in sysfs. InfiniBand has the first.
const (
	rocev1 = "IB/RoCE v1"
	rocev2 = "RoCE v2"
)

// gidTable reads the GID table of a port from sysfs.
func (h *Host) gidTable(port string) []gid {
	var table []gid
	for _, name := range h.list(port + "/gids") {
		index, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		a, err := netip.ParseAddr(h.read(port + "/gids/" + name))
		if err != nil || a.IsUnspecified() {
			continue
		}
		table = append(table, gid{index, a.Unmap(), h.read(port + "/gid_attrs/types/" + name), h.read(port + "/gid_attrs/ndevs/" + name)})
	}
	sort.Slice(table, func(i, j int) bool { return table[i].index < table[j].index })
	return table
}

func has(table []gid, typ string) bool {
	return slices.ContainsFunc(table, func(g gid) bool { return g.typ == typ })
}

// A Choice has the GID index that each program chooses for a port by
// default. -1 means that the program finds none.
type Choice struct {
	Take     int    `json:"take"` // the index that a program should take
	Address  string `json:"address"`
	Type     string `json:"type"`
	NCCL     int    `json:"nccl"`
	UCX      int    `json:"ucx"`
	Perftest int    `json:"perftest"`
}

// agree reports whether all programs choose the GID to take.
func (c *Choice) agree() bool {
	return c.NCCL == c.Take && c.UCX == c.Take && c.Perftest == c.Take
}

// choose returns the choices among the GIDs of a port, or nil if there is none.
func choose(table []gid) *Choice {
	if len(table) == 0 {
		return nil
	}
	take := best(table, func(g gid) int {
		n := 0
		if g.typ == rocev2 {
			n += 4
		}
		if !g.addr.IsLinkLocalUnicast() {
			n += 2
		}
		if g.addr.Is4() {
			n++
		}
		return n
	})
	return &Choice{
		Take: take.index, Address: take.addr.String(), Type: take.typ,
		NCCL: ncclChoice(table), UCX: ucxChoice(table), Perftest: perftestChoice(table),
	}
}

// best returns the first entry with the highest score.
func best(table []gid, score func(gid) int) gid {
	b := table[0]
	for _, g := range table[1:] {
		if score(g) > score(b) {
			b = g
		}
	}
	return b
}

// ncclChoice is the choice of NCCL 2.30 (src/transport/net_ib/connect.cc, ncclIbGetGidIndex).
// It walks the table from index 0, and prefers IPv4 (NCCL_IB_ADDR_FAMILY), then RoCE
// version 2 (NCCL_IB_ROCE_VERSION_NUM).
func ncclChoice(table []gid) int {
	chosen := gid{} // index 0 may have no GID
	if table[0].index == 0 {
		chosen = table[0]
	}
	valid := func(g gid) bool {
		return g.addr.IsValid() && !g.addr.Is6() || g.addr.Is6() && !g.addr.IsLinkLocalUnicast()
	}
	version := func(g gid) int {
		switch g.typ {
		case rocev1:
			return 1
		case rocev2:
			return 2
		}
		return 0
	}
	for _, g := range table {
		if g.index == 0 || !g.addr.Is4() {
			continue
		}
		if !chosen.addr.Is4() || (version(g) != version(chosen) || !valid(chosen)) && version(g) == 2 {
			chosen = g
		}
	}
	return chosen.index
}

// ucxChoice is the choice of UCX 1.23 (src/uct/ib/base/ib_device.c,
// uct_ib_device_select_gid): the first entry of the first class that has one.
func ucxChoice(table []gid) int {
	for _, class := range []struct {
		typ       string
		ipv4      bool
		linkLocal bool
	}{
		{rocev2, true, true}, {rocev2, false, false}, {rocev2, false, true},
		{rocev1, true, true}, {rocev1, false, false}, {rocev1, false, true},
	} {
		for _, g := range table {
			if g.typ == class.typ && g.addr.Is4() == class.ipv4 && (class.linkLocal || !(g.addr.Is6() && g.addr.IsLinkLocalUnicast())) {
				return g.index
			}
		}
	}
	return -1
}

// perftestChoice is the choice of perftest 6.29 (src/perftest_communication.c,
// compute_gid_score).
func perftestChoice(table []gid) int {
	return best(table, func(g gid) int {
		n := 0
		if g.addr.Is4() {
			n += 100
		}
		if !g.addr.IsLinkLocalUnicast() {
			n += 10
		}
		switch g.typ {
		case rocev2:
			n += 2
		case rocev1:
			n++
		}
		return n
	}).index
}

// gids checks the GID table of an active Ethernet port.
func (e *exam) gids(p *port) {
	if !p.ethernet || p.dev.iwarp || p.netDev == "" || !e.host.has(p.net("")) {
		return
	}
	routable := slices.ContainsFunc(p.table, func(g gid) bool { return !g.addr.IsLinkLocalUnicast() })
	if !routable {
		e.noRoutable(p)
		return
	}
	if !has(p.table, rocev2) {
		f := e.addToPort(p, gidOnlyV1, "the port has GIDs for RoCE v1 only")
		g := p.table[0]
		f.evidence(p.sys+"/gid_attrs/types/"+strconv.Itoa(g.index), g.typ)
		if p.dev.driver == "mlx4_core" {
			f.mend("echo 'options mlx4_core roce_mode=2' > /etc/modprobe.d/roce.conf")
			f.Advice = "Then load mlx4_core again, or reboot. A ConnectX-3 without Pro has no RoCE v2."
		} else {
			f.Advice = "The card or its configuration has no RoCE v2."
		}
		return
	}
	if c := choose(p.table); !c.agree() {
		f := e.addToPort(p, gidChoice, "programs choose different GIDs: NCCL %d, UCX %d, perftest %d; index %d is the one to take", c.NCCL, c.UCX, c.Perftest, c.Take)
		for _, i := range []int{c.Take, c.NCCL, c.UCX, c.Perftest} {
			j := slices.IndexFunc(p.table, func(g gid) bool { return g.index == i })
			source := p.sys + "/gids/" + strconv.Itoa(i)
			if j >= 0 && !slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return e.Source == source }) {
				f.evidence(source, p.table[j].addr.String()+", "+p.table[j].typ)
			}
		}
		f.mend("export NCCL_IB_GID_INDEX=%d UCX_IB_GID_INDEX=%[1]d", c.Take)
		f.Advice = "perftest has the option -x " + strconv.Itoa(c.Take) + "."
	}
}

// noRoutable reports that an active port has no GID, or only link-local GIDs.
func (e *exam) noRoutable(p *port) {
	h := e.host
	gids := "no GIDs"
	if len(p.table) > 0 {
		gids = "only link-local GIDs"
	}
	addrs := h.reachable(p.netDev)
	if len(addrs) > 0 {
		f := e.addToPort(p, gidMissing, "the port has %s, although %s has the address %v", gids, p.netDev, addrs[0].Addr())
		f.evidence(p.sys+"/gids", gids).evidence("the address of "+p.netDev, addrs[0].String())
		f.mend("ip address delete %v dev %s && ip address add %[1]v dev %[2]s", addrs[0], p.netDev)
		return
	}
	if h.target(p.net("master")) != "" {
		return // the bond or bridge has the addresses: see exam.bond
	}
	k := addressMissing
	if e.addressedElsewhere(p) {
		k = addressSpare
	}
	f := e.addToPort(p, k, "the port has %s, because %s has no IP address", gids, p.netDev)
	f.evidence(p.sys+"/gids", gids).evidence("the addresses of "+p.netDev, "none, or only link-local")
	f.mend("ip address add ADDRESS/PREFIX dev %s", p.netDev)
	f.Advice = "ADDRESS/PREFIX stands for this host's address in the port's network."
}

// addressedElsewhere reports whether another port of the host can be reached, and this port
// was not requested.
func (e *exam) addressedElsewhere(p *port) bool {
	if e.opts.Device != "" {
		return false
	}
	for _, d := range e.devices {
		for _, other := range d.ports {
			if other != p && other.active() && slices.ContainsFunc(other.table, func(g gid) bool { return !g.addr.IsLinkLocalUnicast() }) {
				return true
			}
		}
	}
	return false
}
