package transport

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
)

// RoCE version 2 carries the packets of queue pairs in UDP, IP and Ethernet. Of these headers, the
// fabric has only the two that receivers need: IP, in the GRH's place, and Ethernet. Version 1
// carries them, with a GRH, in Ethernet.

// Address is an entry of a port's table of RoCE addresses, a source of the port's packets
// and a destination that it accepts. An entry without a MAC address is empty.
type Address struct {
	GID    fabric.GID
	IPv4   bool // of version 2: it is an IPv4 address, mapped
	MAC    fabric.MAC
	Tagged bool // in a VLAN
	VLAN   uint16
	V1     bool // of RoCE version 1
}

// ethernet reports whether the ports are Ethernet ports.
func (e *Engine) ethernet() bool { return e.c.Addresses > 0 }

// SetAddress changes an entry of a port's table.
func (e *Engine) SetAddress(port uint8, index int, a Address) error {
	if !e.hasEntry(port, index) {
		return ErrBadParam
	}
	if _, ok := a.GID.IPv4(); a.IPv4 && !ok && a.MAC != (fabric.MAC{}) {
		return ErrBadParam
	}
	if !a.Tagged {
		a.VLAN = 0
	}
	e.addresses[port-1][index] = a
	e.announce()
	return nil
}

// Address returns an entry of a port's table.
func (e *Engine) Address(port uint8, index int) (Address, bool) {
	if !e.hasEntry(port, index) {
		return Address{}, false
	}
	return e.addresses[port-1][index], true
}

func (e *Engine) hasEntry(port uint8, index int) bool {
	return port >= 1 && int(port) <= len(e.addresses) && index < e.c.Addresses
}

// EnableRoCE enables or disables RoCE, which is disabled at first.
func (e *Engine) EnableRoCE(on bool) {
	e.roce = on
	e.announce()
}

// announce tells the fabric the ports' addresses.
func (e *Engine) announce() {
	for i, table := range e.addresses {
		var all []fabric.MAC
		for _, a := range table {
			if e.roce && a.MAC != (fabric.MAC{}) && !slices.Contains(all, a.MAC) {
				all = append(all, a.MAC)
			}
		}
		e.c.Ports[i].SetMACs(all)
	}
}

// source returns a path's source address, nil if it has none.
func (e *Engine) source(path *Path) *Address {
	port, index := max(path.Port, 1), int(path.SGIDIndex)
	if !e.roce || !e.hasEntry(port, index) || e.addresses[port-1][index].MAC == (fabric.MAC{}) {
		return nil
	}
	return &e.addresses[port-1][index]
}

// IP headers.
const (
	protoUDP  = 17
	sizeUDP   = 8
	sizeICRC  = 4
	dontSplit = 0x4000
)

// addressRoCE fills in a packet's addresses. A path without a source, or between IPv4 and
// IPv6, has no route.
func (e *Engine) addressRoCE(p *fabric.Packet, path *Path) {
	p.RoCE, p.HasGRH = true, true
	p.GRH = [40]byte{}
	from := e.source(path)
	to, v4 := path.DGID.IPv4()
	if from == nil || from.IPv4 != v4 && !from.V1 {
		return
	}
	p.Link = fabric.Link{Source: from.MAC, Dest: path.MAC, Tagged: from.Tagged, V1: from.V1}
	if from.Tagged {
		p.Link.Tag = uint16(path.Priority)<<13 | from.VLAN
	}
	g := &p.GRH
	switch {
	case from.V1:
		putGRH(g, path, nextIsBTH, from.GID)
		return
	case !v4:
		putGRH(g, path, protoUDP, from.GID)
		return
	}
	ip := g[fabric.OffsetIPv4:]
	ip[0], ip[1] = 0x45, path.TClass
	binary.BigEndian.PutUint16(ip[6:], dontSplit)
	ip[8], ip[9] = path.HopLimit, protoUDP
	copy(ip[12:], from.GID[12:])
	copy(ip[16:], to[:])
}

// sealRoCE writes the fields that depend on the complete packet.
func sealRoCE(p *fabric.Packet) {
	n := len(p.Data) + sizeICRC
	if !p.Link.V1 {
		n += sizeUDP
	}
	if !p.IPv4() {
		binary.BigEndian.PutUint16(p.GRH[4:], uint16(n))
		return
	}
	ip := p.GRH[fabric.OffsetIPv4:]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+n))
	binary.BigEndian.PutUint16(ip[10:], ^frame.Fold(frame.Sum(0, ip)))
}

// addressed reports whether a received packet is for the port: an entry of its table must
// have the packet's addresses. Multicast packets are checked by their groups.
func (e *Engine) addressed(port uint8, p *fabric.Packet) bool {
	if e.c.GRHRequired && !p.HasGRH {
		return false
	}
	if p.RoCE != e.ethernet() || p.RoCE && (!e.roce || !p.HasGRH) {
		return false
	}
	if !p.RoCE || p.Link.Dest[0]&1 != 0 {
		return true
	}
	dgid := p.DGID()
	vlan, tagged := p.Link.VLAN()
	return slices.Contains(e.addresses[port-1], Address{GID: dgid, IPv4: p.IPv4(), MAC: p.Link.Dest, Tagged: tagged, VLAN: vlan, V1: p.Link.V1})
}

// fromPeer reports whether a packet's addresses are those of the queue pair's connection.
func (q *QP) fromPeer(p *fabric.Packet) bool {
	path := &q.c.Primary
	if !p.RoCE {
		return p.SLID == path.DLID || path.DLID == 0
	}
	own := q.e.source(path)
	return own != nil && own.V1 == p.Link.V1 && p.DGID() == own.GID && p.SGID() == path.DGID
}

// Kinds of headers in completions, MLX5_CQE_ROCE_L3_HEADER_TYPE_*.
const (
	headerGRH  = 0
	headerIPv6 = 1
	headerIPv4 = 2
)

// origin fills in a completion's fields about a packet's source.
func origin(c *cq.Completion, p *fabric.Packet) {
	c.SLID, c.SL, c.GRH = p.SLID, p.SL, p.HasGRH
	if !p.RoCE {
		return
	}
	switch c.SL = headerIPv6; {
	case p.Link.V1:
		c.SL = headerGRH
	case p.IPv4():
		c.SL = headerIPv4
	}
	if p.Link.Tagged {
		c.L4L3Type |= cq.Tagged
		c.VLAN = p.Link.Tag
	}
}
