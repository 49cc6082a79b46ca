package fabric

import (
	"encoding/binary"
	"slices"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Link is the Ethernet header of a RoCE packet.
type Link struct {
	Source, Dest MAC
	Tagged       bool
	Tag          uint16 // the VLAN tag: the VLAN ID, and above it the priority
	V1           bool   // the type of frames of RoCE version 1, in which a GRH follows
}

// VLAN returns the packet's VLAN ID, and whether the packet is tagged.
func (l *Link) VLAN() (number uint16, tagged bool) { return l.Tag & 0xfff, l.Tagged }

// OffsetIPv4 is the offset of an IPv4 header in a RoCE packet's GRH field, after zeros. An
// IPv6 header fills the field.
const OffsetIPv4 = 20

// IPv4 reports whether the packet is RoCE over IPv4.
func (p *Packet) IPv4() bool { return p.RoCE && p.GRH[0]>>4 != 6 }

// IPv4 returns the IPv4 address of an IPv4-mapped GID.
func (g GID) IPv4() (address [4]byte, ok bool) {
	return [4]byte(g[12:]), binary.BigEndian.Uint64(g[:]) == 0 && binary.BigEndian.Uint32(g[8:]) == 0xffff
}

// mapped returns the IPv4-mapped GID of an address.
func mapped(address []byte) (g GID) {
	g[10], g[11] = 0xff, 0xff
	copy(g[12:], address)
	return g
}

// SetMACs sets the addresses whose unicast RoCE packets the port receives.
func (p *Port) SetMACs(all []MAC) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.macs = slices.Clone(all)
}

// toGroup reports whether the packet is for a multicast group.
func (p *Packet) toGroup() bool {
	if p.RoCE {
		return p.Link.Dest[0]&1 != 0
	}
	return p.HasGRH && p.DGID().Multicast()
}

// routeRoCE appends the ports that have the packet's destination address.
func (f *Fabric) routeRoCE(to []*Port, p *Packet) []*Port {
	for _, q := range f.ports {
		if q.up && slices.Contains(q.macs, p.Link.Dest) {
			to = append(to, q)
		}
	}
	return to
}
