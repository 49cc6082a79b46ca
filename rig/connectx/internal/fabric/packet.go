package fabric

import "sync"

// GID addresses a port, or a multicast group.
type GID [16]byte

// Multicast reports whether the GID is an IPv6 or IPv4 multicast group's.
func (g GID) Multicast() bool {
	address, ok := g.IPv4()
	return g[0] == 0xff || ok && address[0]>>4 == 0xe
}

// MaxPacket is the maximum length of a packet's data: an MTU of 4096 bytes and all headers
// from the BTH on, or an Ethernet frame.
const MaxPacket = 4096 + 128

// FirstMulticastLID is the first multicast LID. A packet to a group must have a GRH, and is
// routed by its GID.
const FirstMulticastLID = 0xc000

// PermissiveLID addresses the other end of the link: the other port, if there are two. With
// more, all links end at a switch that nobody can talk to, unless SetSwitches has put one there.
const PermissiveLID = 0xffff

// Packet is one packet on the wire. It has one owner at a time: the sender passes it on,
// and the receiver frees it.
type Packet struct {
	SLID, DLID uint16
	SL         uint8
	HasGRH     bool
	GRH        [40]byte // as on the wire: source GID at 8, destination GID at 24
	Ethernet   bool     // Data is an Ethernet frame, and the other fields are unused
	RoCE       bool     // Link has the addresses, not the LIDs, and GRH is an IP header
	Link       Link
	Data       []byte // from the base transport header on
	buf        [MaxPacket]byte
}

var packets = sync.Pool{New: func() any { return new(Packet) }}

// NewPacket returns an empty packet whose Data has room for MaxPacket bytes.
func NewPacket() *Packet {
	p := packets.Get().(*Packet)
	p.SLID, p.DLID, p.SL, p.HasGRH, p.Ethernet, p.RoCE, p.Link = 0, 0, 0, false, false, false, Link{}
	p.Data = p.buf[:0]
	return p
}

// Free releases the packet.
func (p *Packet) Free() { packets.Put(p) }

// Clone copies a packet.
func (p *Packet) Clone() *Packet {
	c := NewPacket()
	c.SLID, c.DLID, c.SL, c.HasGRH, c.GRH, c.Ethernet, c.RoCE, c.Link = p.SLID, p.DLID, p.SL, p.HasGRH, p.GRH, p.Ethernet, p.RoCE, p.Link
	c.Data = append(c.Data, p.Data...)
	return c
}

// SGID returns the source in the GRH.
func (p *Packet) SGID() GID {
	if p.IPv4() {
		return mapped(p.GRH[OffsetIPv4+12 : OffsetIPv4+16])
	}
	return GID(p.GRH[8:24])
}

// DGID returns the destination in the GRH.
func (p *Packet) DGID() GID {
	if p.IPv4() {
		return mapped(p.GRH[OffsetIPv4+16:])
	}
	return GID(p.GRH[24:40])
}
