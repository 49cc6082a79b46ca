package doctor

import (
	"slices"
	"strings"
)

// lagModes are the bonding modes over which mlx5 makes one RDMA device of two ports
// (drivers/net/ethernet/mellanox/mlx5/core/lag).
var lagModes = []string{"active-backup", "balance-xor", "802.3ad"}

// bond checks the bond, or the bridge, that the port's network interface belongs to.
func (e *exam) bond(p *port) {
	if !p.ethernet {
		return
	}
	h := e.host
	bond := h.target(p.net("master"))
	bridge := h.has("/sys/class/net/" + bond + "/bridge")
	modeFile := "/sys/class/net/" + bond + "/bonding/mode"
	mode, _, _ := strings.Cut(h.read(modeFile), " ")
	switch {
	case bond == "" || mode == "" && !bridge:
	case p.dev.driver == "rxe":
		what := "bond"
		if bridge {
			what = "bridge"
		}
		f := e.addToPort(p, rxeBelow, "the software device is on %s, a port of the %s %s", p.netDev, what, bond)
		f.evidence(p.net("master"), bond)
		f.mend("ibv link delete %s && ibv link add %[1]s type rxe netdev %s", p.dev.name, bond)
	case bridge:
		// Cards divert RoCE packets before the bridge, and have the GIDs of the bridge's addresses.
	case p.dev.driver == "mlx5_core" && !slices.Contains(lagModes, mode):
		f := e.addToPort(p, bondMode, "the bond %s has the mode %s, over which RDMA uses one port only", bond, mode)
		f.evidence(modeFile, mode)
		f.Advice = "RDMA over both ports needs the mode active-backup, balance-xor or 802.3ad."
	case p.dev.driver == "mlx5_core" && !strings.Contains(p.dev.name, "bond") && e.twoOfCard(p):
		f := e.addToPort(p, bondSplit, "the bond %s consists of two ports of one card, but each has an RDMA device of its own", bond)
		f.evidence(p.net("master"), bond).evidence("/sys/class/infiniband", p.dev.name+" and others")
		f.Advice = "Load mlx5_ib after the bond has been made, or check that SR-IOV was enabled after it: then one device is called mlx5_bond_0."
	}
}

// twoOfCard reports whether another device of the same card is in the same bond.
func (e *exam) twoOfCard(p *port) bool {
	h := e.host
	guid := h.read(p.dev.sys + "/sys_image_guid")
	for _, d := range e.all {
		for _, other := range d.ports {
			if d != p.dev && other.netDev != "" && h.read(d.sys+"/sys_image_guid") == guid && h.target(other.net("master")) == h.target(p.net("master")) {
				return true
			}
		}
	}
	return false
}
