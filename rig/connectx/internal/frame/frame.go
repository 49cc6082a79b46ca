// Package frame parses Ethernet frames: it finds their headers, computes their checksums,
// and cuts large sends into segments.
package frame

import "encoding/binary"

// Ethernet types, and protocols of IP.
const (
	TypeIPv4 = 0x0800
	TypeIPv6 = 0x86dd
	TypeVLAN = 0x8100
	TypeQinQ = 0x88a8
	TypeEth  = 0x6558 // a frame in a tunnel

	TCP = 6
	UDP = 17
	GRE = 47
	ESP = 50
	AH  = 51
)

// Min is the size of the header that every frame has.
const Min = 14

// Tag is a VLAN tag.
type Tag struct{ Type, TCI uint16 }

// Layers has the offsets of a frame's headers from the beginning of the data. The offset
// of a missing header is 0.
type Layers struct {
	L2      int
	Tags    [2]Tag // the outermost ones
	Tagged  int    // how many there are of those
	Type    uint16 // after the tags
	Version uint8  // 4 or 6, if the IP header is complete
	Header  int    // of IP
	End     int    // of the IP packet; padding follows
	Cut     bool   // the IP packet is longer than the frame
	Proto   uint8
	// Fragment: the rest of the packet is elsewhere.
	Fragment bool
	// L4 is the offset of a complete TCP or UDP header, or of another
	// protocol's data.
	L4 int
}

// Parse finds the headers of the frame that begins at an offset.
func Parse(b []byte, at int) Layers {
	l := Layers{L2: at}
	if at+Min > len(b) {
		return l
	}
	at += 12
	l.Type = binary.BigEndian.Uint16(b[at:])
	for (l.Type == TypeVLAN || l.Type == TypeQinQ) && l.Tagged < len(l.Tags) && at+6 <= len(b) {
		l.Tags[l.Tagged] = Tag{l.Type, binary.BigEndian.Uint16(b[at+2:])}
		l.Tagged++
		at += 4
		l.Type = binary.BigEndian.Uint16(b[at:])
	}
	l.network(b, at+2)
	return l
}

// network reads the IP header at an offset.
func (l *Layers) network(b []byte, at int) {
	switch {
	case l.Type == TypeIPv4 && at+20 <= len(b) && b[at]>>4 == 4:
		n := int(b[at]&0xf) * 4
		if n < 20 || at+n > len(b) {
			return
		}
		l.end(b, at+n, at+int(binary.BigEndian.Uint16(b[at+2:])))
		l.Version, l.Header, l.Proto = 4, at, b[at+9]
		const more, offset = 1 << 13, 1<<13 - 1
		flags := binary.BigEndian.Uint16(b[at+6:])
		l.Fragment = flags&(more|offset) != 0
		l.transport(b, at+n)
	case l.Type == TypeIPv6 && at+40 <= len(b) && b[at]>>4 == 6:
		l.end(b, at+40, at+40+int(binary.BigEndian.Uint16(b[at+4:])))
		l.Version, l.Header, l.Proto = 6, at, b[at+6]
		l.extensions(b, at+40)
	}
}

// end sets the end of the IP packet whose header ends at an offset.
func (l *Layers) end(b []byte, header, end int) {
	l.End = end
	if end < header || end > len(b) {
		l.End, l.Cut = len(b), true
	}
}

// extensions skips IPv6's extension headers.
func (l *Layers) extensions(b []byte, at int) {
	const hopByHop, routing, fragment, destination = 0, 43, 44, 60
	for at+8 <= l.End {
		switch l.Proto {
		case hopByHop, routing, destination:
			l.Proto = b[at]
			at += int(b[at+1])*8 + 8
		case fragment:
			l.Fragment = true
			l.Proto = b[at]
			at += 8
		default:
			l.transport(b, at)
			return
		}
	}
}

func (l *Layers) transport(b []byte, at int) {
	size := 0
	switch l.Proto {
	case TCP:
		size = 20
	case UDP:
		size = 8
	}
	if !l.Fragment && at+size <= l.End {
		l.L4 = at
	}
}

// Ports reports whether the frame has TCP's or UDP's header.
func (l *Layers) Ports() bool { return l.L4 != 0 && (l.Proto == TCP || l.Proto == UDP) }

// SPI is the security parameters index of IPsec's header, nil if there is none.
func (l *Layers) SPI(b []byte) []byte {
	at := l.L4
	switch l.Proto {
	case ESP:
	case AH:
		at += 4
	default:
		return nil
	}
	if l.L4 == 0 || at+4 > l.End {
		return nil
	}
	return b[at : at+4]
}

// Inner finds the frame in a VXLAN or GRE tunnel.
func (l *Layers) Inner(b []byte) (inner Layers, ok bool) {
	at := 0
	switch {
	case l.VXLAN(b):
		at = l.L4 + 16
	case l.Proto == GRE && l.L4 != 0 && l.L4+4 <= l.End && binary.BigEndian.Uint16(b[l.L4+2:]) == TypeEth:
		at = l.L4 + GRESize(b[l.L4])
	}
	if at == 0 || at+Min > l.End {
		return inner, false
	}
	return Parse(b[:l.End], at), true
}

// VXLAN reports whether a VXLAN header follows UDP's.
func (l *Layers) VXLAN(b []byte) bool {
	const port = 4789
	return l.Proto == UDP && l.L4 != 0 && l.L4+16 <= l.End && binary.BigEndian.Uint16(b[l.L4+2:]) == port
}

// Flags of GRE's first byte.
const (
	GREChecksum = 1 << 7
	GREKey      = 1 << 5
	GRESequence = 1 << 4
)

// GRESize is the size of a GRE header with these flags.
func GRESize(flags byte) int {
	n := 4
	for _, f := range []byte{GREChecksum, GREKey, GRESequence} {
		if flags&f != 0 {
			n += 4
		}
	}
	return n
}
