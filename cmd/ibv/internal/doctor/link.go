package doctor

import (
	"fmt"
	"strings"
)

// link checks the width and speed of an active link.
func (e *exam) link(p *port) {
	if p.ethernet {
		active, both := e.host.Speeds(p.netDev)
		if active > 0 && both > active {
			f := e.addToPort(p, linkSlow, "the link runs at %d Mb/s, although both ends offer %d", active, both)
			f.evidence("ethtool "+p.netDev, fmt.Sprintf("speed %d, offered by both ends %d", active, both))
			f.mend("ethtool -s %s autoneg on speed %d", p.netDev, both)
			f.Advice = "If that doesn't help, check the cable."
		}
		return
	}
	// "2.5 Gb/sec (1X SDR)". InfiniBand cables have four lanes. Cables that split a switch's
	// port have two lanes for each end.
	inside := strings.Trim(p.rate[strings.IndexByte(p.rate, '(')+1:], ")")
	width, speed, _ := strings.Cut(inside, " ")
	if width == "1X" && speed != "NDR" && speed != "XDR" { // there are products with one lane of these
		f := e.addToPort(p, linkNarrow, "the link uses one of its lanes only")
		f.evidence(p.sys+"/rate", p.rate)
		f.Advice = "The cable or its transceiver is likely bad. Train the link anew: ibportstate -D 0 1 reset; mlxlink -d " + p.dev.name + " says more."
	}
	// Each mlx5 card supports at least FDR, and switches without QDR are no longer in use.
	if p.dev.driver == "mlx5_core" && (speed == "SDR" || speed == "DDR") && width != "1X" {
		f := e.addToPort(p, linkSlowIB, "the link runs at %s, which is less than the card's FDR or more", p.rate)
		f.evidence(p.sys+"/rate", p.rate)
		f.Advice = "The cable is bad, or the other end is old: mlxlink -d " + p.dev.name + " says more."
	}
}
