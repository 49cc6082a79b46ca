package doctor

import (
	"fmt"
	"strconv"
)

// port checks that the port is active. The states are those of PortInfo (InfiniBand
// Architecture Specification, volume 1, 14.2.5.6), and an Ethernet port has them too.
func (e *exam) port(p *port) {
	if p.active() || e.netDevElsewhere(p) {
		return
	}
	if e.spare(p) {
		f := e.addToPort(p, portSpare, "the port is not in use")
		f.evidence(p.sys+"/state", p.state).evidence(p.sys+"/phys_state", p.phys)
		return
	}
	if p.ethernet {
		e.ethernetPort(p)
	} else {
		e.infiniBandPort(p)
	}
}

func (e *exam) netDevElsewhere(p *port) bool {
	if p.ethernet && p.netDev != "" && !e.host.has(p.net("")) {
		e.netns(p)
		return true
	}
	return false
}

// spare reports whether the port seems unused: another port is
// active, and this port has no address.
func (e *exam) spare(p *port) bool {
	if p.netDev != "" && len(e.host.reachable(p.netDev)) > 0 {
		return false
	}
	for _, d := range e.devices {
		for _, other := range d.ports {
			if other.active() {
				return true
			}
		}
	}
	return false
}

func (e *exam) ethernetPort(p *port) {
	h := e.host
	flags, err := strconv.ParseUint(h.read(p.net("flags")), 0, 32)
	switch {
	case p.netDev == "" || err != nil:
		f := e.addToPort(p, portDown, "the port is not active")
		f.evidence(p.sys+"/state", p.state).evidence(p.sys+"/phys_state", p.phys)
		f.Advice = "Its network interface was not found. The kernel's log may say more: dmesg | grep " + p.dev.name
	case flags&1 == 0: // IFF_UP
		f := e.addToPort(p, netDevDown, "the port is down, because the network interface %s is", p.netDev)
		f.evidence(p.sys+"/state", p.state).evidence(p.net("flags"), fmt.Sprintf("%#x (not UP)", flags))
		f.mend("ip link set dev %s up", p.netDev)
	case e.otherEndDown(p):
		// The other end of a veth pair is on this host, and has the finding.
	case h.read(p.net("carrier")) == "0":
		f := e.addToPort(p, noCarrier, "the port is down, because the network interface %s has no link", p.netDev)
		f.evidence(p.sys+"/phys_state", p.phys).evidence(p.net("carrier"), "0")
		f.Advice = "Check the cable, the transceiver, and that the switch's port is enabled: ethtool " + p.netDev + "; ethtool -m " + p.netDev
	default:
		f := e.addToPort(p, portDown, "the port is not active, although the network interface %s is up", p.netDev)
		f.evidence(p.sys+"/state", p.state).evidence(p.sys+"/phys_state", p.phys).evidence(p.net("operstate"), h.read(p.net("operstate")))
		f.mend("ip link set dev %s down && ip link set dev %[1]s up", p.netDev)
	}
}

// otherEndDown reports whether the port is on a veth interface whose other end, on a port
// of this host, is down.
func (e *exam) otherEndDown(p *port) bool {
	h := e.host
	link := h.read(p.net("iflink"))
	if link == "" || link == h.read(p.net("ifindex")) {
		return false
	}
	for _, d := range e.devices {
		for _, other := range d.ports {
			if other != p && other.netDev != "" && h.read(other.net("ifindex")) == link {
				flags, err := strconv.ParseUint(h.read(other.net("flags")), 0, 32)
				return err == nil && flags&1 == 0
			}
		}
	}
	return false
}

func (e *exam) infiniBandPort(p *port) {
	h := e.host
	add := func(k *Kind, what string) *Finding {
		f := e.addToPort(p, k, "%s", what)
		return f.evidence(p.sys+"/state", p.state).evidence(p.sys+"/phys_state", p.phys)
	}
	const cable = "Check the cable, the transceiver, and the port at the other end: mlxlink -d "
	switch phys := p.word(p.phys); {
	case phys == "Disabled" || phys == "Sleep":
		f := add(portDisabled, "the port was disabled")
		f.mend("ibportstate -C %s -P %d -D 0 %[2]d enable", p.dev.name, p.number)
	case phys == "Polling":
		f := add(noLink, "the port finds no link: it is polling")
		f.Advice = cable + p.dev.name
	case phys == "PortConfigurationTraining":
		f := add(linkTraining, "the link's training doesn't end")
		f.Advice = cable + p.dev.name
	case phys == "LinkErrorRecovery":
		f := add(linkRecovery, "the link recovers from errors")
		f.Advice = cable + p.dev.name
	case p.word(p.state) == "INIT":
		f := add(noSubnetManager, "no subnet manager has configured the port")
		f.evidence(p.sys+"/sm_lid", h.read(p.sys+"/sm_lid"))
		f.mend("systemctl start opensm")
		f.Advice = "One host of the subnet, or a switch, must run a subnet manager."
	case p.word(p.state) == "ARMED":
		f := add(portArmed, "the subnet manager has not activated the port")
		f.evidence(p.sys+"/sm_lid", h.read(p.sys+"/sm_lid"))
		f.Advice = "The log of the subnet manager says why: " + "sminfo -C " + p.dev.name
	default:
		f := add(portDown, "the port is not active")
		f.Advice = "The kernel's log may say more: dmesg | grep " + p.dev.name
	}
}
