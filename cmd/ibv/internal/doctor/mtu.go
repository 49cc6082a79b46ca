package doctor

import (
	"strconv"

	"github.com/goverbs/goverbs/ib"
)

// roceHeaders is the number of bytes that the kernel reserves for headers
// when it computes the active MTU (rdma/ib_addr.h, iboe_get_mtu): GRH, UDP, BTH, the
// headers of XRC and atomics, and the ICRC. rxe reserves fewer.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// mtu checks the MTU of an active port.
func (e *exam) mtu(p *port) {
	a := p.answer()
	if a == nil || p.dev.iwarp {
		return
	}
	active := strconv.Itoa(a.ActiveMTU)
	source := p.dev.name + ", active_mtu of port " + strconv.Itoa(p.number)
	if !p.ethernet {
		if a.ActiveMTU < a.MaxMTU && a.ActiveMTU < 2048 {
			f := e.addToPort(p, mtuSubnet, "the active MTU is %d, the port can %d", a.ActiveMTU, a.MaxMTU)
			f.evidence(source, active)
			f.Advice = "The subnet manager sets it, and so does the smallest port of a path."
		}
		return
	}
	n, ok := e.host.number(p.net("mtu"))
	if !ok {
		return
	}
	switch can := min(ib.MTUOf(n-roceHeaders).Bytes(), a.MaxMTU); {
	case a.ActiveMTU < can:
		f := e.addToPort(p, mtuBehind, "the active MTU is %d, although the MTU of %s allows %d", a.ActiveMTU, p.netDev, can)
		f.evidence(source, active).evidence(p.net("mtu"), strconv.Itoa(n))
		f.mend("ip link set dev %s down && ip link set dev %[1]s up", p.netDev)
	case a.ActiveMTU < 1024:
		f := e.addToPort(p, mtuLow, "the active MTU is only %d, because that of %s is %d", a.ActiveMTU, p.netDev, n)
		f.evidence(source, active).evidence(p.net("mtu"), strconv.Itoa(n))
		f.mend("ip link set dev %s mtu 1500", p.netDev)
	}
}
