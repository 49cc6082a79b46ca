package diags

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// A kind is a type of node, with the programs' names for it.
type kind struct {
	number                     uint64
	list, detail, prefix, link string
	letter                     string
}

var (
	adapters = kind{1, "Ca", "Ca", "ca", "CA", "H"}
	switches = kind{2, "Switch", "Switch", "switch", "Switch", "S"}
	routers  = kind{3, "Router", "Rt", "rt", "Router", "R"}
)

// each calls do with the nodes of a type, in the reverse order of discovery, as libibnetdisc does.
func (f *Fabric) each(k kind, do func(n *node)) {
	for _, n := range slices.Backward(f.nodes) {
		if n.get("NodeType") == k.number {
			do(n)
		}
	}
}

// rate returns the width and the speed of a port's link.
func (p *port) rate() (width, speed string) {
	width, ok := map[uint64]string{1: "1x", 2: "4x", 4: "8x", 8: "12x", 16: "2x"}[p.get("LinkWidthActive")]
	if !ok {
		width = "??"
	}
	names := map[uint64]string{1: "SDR", 2: "DDR", 4: "QDR"}
	active := p.get("LinkSpeedActive")
	if extended := p.extended(); extended != 0 {
		names, active = map[uint64]string{1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR"}, extended
	}
	if speed, ok = names[active]; !ok {
		speed = "???"
	}
	return width, speed
}

// extended returns the active extended speed, or 0. A switch's port 0 says whether its ports have
// extended speeds.
func (p *port) extended() uint64 {
	const extendedSpeeds = 1 << 14
	says := p
	if zero := p.node.ports[0]; p.node.isSwitch() && zero != nil {
		says = zero
	}
	if says.get("CapMask")&extendedSpeeds == 0 {
		return 0
	}
	return p.get("LinkSpeedExtActive")
}

// Topology prints all nodes and links as ibnetdiscover does. full and hops are its options.
func (f *Fabric) Topology(w io.Writer, full, hops bool) {
	fmt.Fprintf(w, "#\n# Topology file: generated on %s\n#\n", time.Now().Format(time.ANSIC))
	if hops {
		fmt.Fprintf(w, "# Reported max hops discovered: %d\n# Total MADs used: %d\n", f.hops, f.smps)
	}
	fmt.Fprintf(w, "# Initiated from node %016x port %016x\n", f.from.get("Guid"), f.from.get("PortGuid"))
	for _, k := range []kind{switches, adapters, routers} {
		f.each(k, func(n *node) { n.topology(w, k, full) })
	}
}

func (n *node) topology(w io.Writer, k kind, full bool) {
	fmt.Fprintf(w, "\nvendid=%#x\ndevid=%#x\n", n.get("VendorId"), n.get("DevId"))
	if guid := n.get("SystemGuid"); guid != 0 {
		fmt.Fprintf(w, "sysimgguid=%#x\n", guid)
	}
	fmt.Fprintf(w, "%sguid=%#x", k.prefix, n.get("Guid"))
	if n.isSwitch() {
		fmt.Fprintf(w, "(%x)", n.get("PortGuid"))
	}
	fmt.Fprintf(w, "\n%s\t%d %s\t\t# \"%s\"", k.detail, n.get("NumPorts"), n.id(), n.name())
	if n.isSwitch() {
		zero, enhanced := n.ports[0], "base"
		if find(switchInfo, "EnhancedPort0").value(n.switches) != 0 {
			enhanced = "enhanced"
		}
		fmt.Fprintf(w, " %s port 0 lid %d lmc %d", enhanced, zero.lid(), zero.get("LMC"))
	}
	fmt.Fprintln(w)
	for _, p := range n.all() {
		if p.number != 0 && p.remote != nil {
			p.topology(w, full)
		}
	}
}

// topology prints the port's link.
func (p *port) topology(w io.Writer, full bool) {
	r := p.remote
	fmt.Fprintf(w, "[%d]", p.number)
	if p.node.isSwitch() {
		fmt.Fprintf(w, "\t%s[%d]", r.node.id(), r.number)
		if !r.node.isSwitch() {
			fmt.Fprintf(w, "(%x) ", r.guid)
		}
		fmt.Fprint(w, "\t\t#")
	} else {
		fmt.Fprintf(w, "(%x) \t%s[%d]", p.guid, r.node.id(), r.number)
		if !r.node.isSwitch() {
			fmt.Fprintf(w, " (%x) ", r.guid)
		}
		fmt.Fprintf(w, "\t\t# lid %d lmc %d", p.get("Lid"), p.get("LMC"))
	}
	width, speed := p.rate()
	fmt.Fprintf(w, " \"%s\" lid %d %s%s", r.node.name(), r.lid(), width, speed)
	if full {
		fmt.Fprintf(w, " s=%d w=%d v=%d", p.get("LinkSpeedActive"), p.get("LinkWidthActive"), p.get("VLCap"))
	}
	fmt.Fprintln(w)
}

// Ports prints a line for each port as ibnetdiscover does with --ports.
func (f *Fabric) Ports(w io.Writer) {
	for _, n := range slices.Backward(f.nodes) {
		for _, p := range slices.Backward(n.all()) {
			if p.number == 0 {
				continue
			}
			width, speed := p.rate()
			fmt.Fprintf(w, "%s %s %s", p.brief(), width, speed)
			if r := p.remote; r != nil {
				fmt.Fprintf(w, " - %s ( '%s' - '%s' )\n", r.brief(), n.name(), r.node.name())
			} else {
				fmt.Fprintf(w, "%36s'%s'\n", "", n.name())
			}
		}
	}
}

// brief returns a port's type, LID, number and GUID.
func (p *port) brief() string {
	kind, ok := map[uint64]string{1: "CA", 2: "SW", 3: "RT"}[p.node.get("NodeType")]
	if !ok {
		kind = "??"
	}
	return fmt.Sprintf("%s %5d %2d 0x%016x", kind, p.lid(), p.number, p.guid)
}

// List prints the nodes of some types as ibnetdiscover does: adapters (H), switches (S) and
// routers (R).
func (f *Fabric) List(w io.Writer, letters string) {
	for _, k := range []kind{adapters, switches, routers} {
		if !strings.Contains(letters, k.letter) {
			continue
		}
		f.each(k, func(n *node) {
			fmt.Fprintf(w, "%s\t : 0x%016x ports %d devid %#x vendid %#x \"%s\"\n", k.list, n.get("Guid"), n.get("NumPorts"), n.get("DevId"), n.get("VendorId"), n.name())
		})
	}
}

// has reports whether the letters of types of nodes name the node's, or none.
func (n *node) has(letters string) bool {
	return letters == "" || strings.Contains(letters, n.id()[1:2])
}

// put puts all ports of nodes of some types into the JSON, with the other ends of their links.
func (f *Fabric) put(letters string, downOnly bool) {
	for _, n := range slices.Backward(f.nodes) {
		for _, p := range n.all() {
			if !n.has(letters) || downOnly && !p.down() {
				continue
			}
			width, speed := p.rate()
			object := append(p.end(""), "state", p.words("LinkState"), "physical_state", p.words("PhysLinkState"), "width", width, "speed", speed)
			if p.remote != nil {
				object = append(object, p.remote.end("remote_")...)
			}
			cli.Put(object...)
		}
	}
}

// end returns what the JSON has of one end of a link.
func (p *port) end(prefix string) []any {
	kind, _, _ := strings.Cut(p.brief(), " ")
	return []any{prefix + "type", kind, prefix + "guid", fmt.Sprintf("0x%016x", p.node.get("Guid")), prefix + "name", p.node.name(), prefix + "lid", p.lid(),
		prefix + "port", p.number, prefix + "port_guid", fmt.Sprintf("0x%016x", p.guid)}
}

// Links prints the state of all links as iblinkinfo does. The options of iblinkinfo select links that are
// down, or one line for each link. only is the letter of a type of nodes, as for List, or "" for all.
func (f *Fabric) Links(w io.Writer, only string, downOnly, lines bool) {
	for _, n := range slices.Backward(f.nodes) {
		if !n.has(only) {
			continue
		}
		header := !lines
		for _, p := range n.all() {
			if p.number == 0 || downOnly && !p.down() {
				continue
			}
			if header {
				header = false
				n.header(w)
			}
			p.linkInfo(w, lines)
		}
	}
}

func (n *node) header(w io.Writer) {
	for _, k := range []kind{switches, adapters, routers} {
		if n.get("NodeType") == k.number {
			fmt.Fprintf(w, "%s:", k.link)
		}
	}
	if n.isSwitch() {
		fmt.Fprintf(w, " 0x%016x", n.ports[0].guid)
	}
	fmt.Fprintf(w, " %s:\n", n.name())
}

func (p *port) down() bool {
	const down = 1
	return p.get("LinkState") == down
}

// words returns a field's value as text.
func (p *port) words(name string) string {
	f := find(portInfo, name)
	return f.text(f, f.value(p.info))
}

func (p *port) linkInfo(w io.Writer, lines bool) {
	state := fmt.Sprintf("%6s/%8s", p.words("LinkState"), p.words("PhysLinkState"))
	link := fmt.Sprintf("(              %s)", state)
	if !p.down() {
		speed := p.words("LinkSpeedActive")
		if p.extended() != 0 {
			speed = p.words("LinkSpeedExtActive")
		}
		link = fmt.Sprintf("(%3s %18s %s)", p.words("LinkWidthActive"), speed, state)
	}
	other := "    \"Port not available\""
	switch r := p.remote; {
	case r != nil:
		guid := ""
		if lines {
			guid = fmt.Sprintf("0x%016x ", r.guid)
		}
		other = fmt.Sprintf("%s%6d %4d[  ] \"%s\" (%s %s)", guid, r.lid(), r.number, r.node.name(), p.could("LinkWidth"), p.could("LinkSpeed"))
	case p.down():
		other = "           [  ] \"\" ( )"
	}
	lid := p.lid()
	if lines {
		fmt.Fprintf(w, "0x%016x \"%30s\" ", p.guid, p.node.name())
	} else {
		fmt.Fprint(w, "      ")
		if !p.node.isSwitch() {
			fmt.Fprintf(w, "0x%016x ", p.guid)
		}
	}
	fmt.Fprintf(w, "%6d %4d[  ] ==%s==>  %s\n", lid, p.number, link, other)
}

// could returns a remark on a link's possible width or speed, if both ends support more than is active.
func (p *port) could(what string) string {
	active, most := what+"Active", uint64(0)
	if what == "LinkSpeed" && p.extended() != 0 && p.remote.extended() != 0 {
		what, active = "LinkSpeedExt", "LinkSpeedExtActive"
	}
	both := p.get(what+"Supported") & p.remote.get(what+"Supported")
	// The widths are in the order of their bits, except for 2X.
	order := []uint64{1, 16, 2, 4, 8}
	if what != "LinkWidth" {
		order = []uint64{1, 2, 4, 8}
	}
	for _, bit := range order {
		if both&bit != 0 {
			most = bit
		}
	}
	if most == 0 || p.get(active)&most != 0 {
		return ""
	}
	f := find(portInfo, active)
	return "Could be " + f.text(f, most)
}
