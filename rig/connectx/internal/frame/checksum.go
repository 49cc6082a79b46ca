package frame

import "encoding/binary"

// Sum adds big-endian words to s as Internet checksums do, not folded.
func Sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
		s = s&0xffff + s>>16
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

// Fold folds a sum to a checksum that isn't complemented.
func Fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// pseudo returns the sum of the pseudo-header of TCP and UDP.
func (l *Layers) pseudo(b []byte) uint32 {
	s := uint32(l.Proto) + uint32(l.End-l.L4)
	if l.Version == 4 {
		return Sum(s, b[l.Header+12:l.Header+20])
	}
	return Sum(s, b[l.Header+8:l.Header+40])
}

// headerEnd returns the offset of the IPv4 header's end.
func (l *Layers) headerEnd(b []byte) int { return l.Header + int(b[l.Header]&0xf)*4 }

// SetIP writes the checksum of the IPv4 header, if the frame has one.
func (l *Layers) SetIP(b []byte) {
	if l.Version == 4 {
		binary.BigEndian.PutUint16(b[l.Header+10:], 0)
		binary.BigEndian.PutUint16(b[l.Header+10:], ^Fold(Sum(0, b[l.Header:l.headerEnd(b)])))
	}
}

// SetTransport writes the checksum of TCP or UDP, if the frame has either.
func (l *Layers) SetTransport(b []byte) {
	if !l.Ports() {
		return
	}
	at := l.L4 + 16
	if l.Proto == UDP {
		at = l.L4 + 6
	}
	binary.BigEndian.PutUint16(b[at:], 0)
	c := ^Fold(Sum(l.pseudo(b), b[l.L4:l.End]))
	if c == 0 && l.Proto == UDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], c)
}

// IPOK reports whether the IP header's checksum is right. IPv6 has none.
func (l *Layers) IPOK(b []byte) bool {
	return l.Version == 6 || l.Version == 4 && Fold(Sum(0, b[l.Header:l.headerEnd(b)])) == 0xffff
}

// TransportOK reports whether the checksum of TCP or UDP is right. UDP over
// IPv4 may have none.
func (l *Layers) TransportOK(b []byte) bool {
	if !l.Ports() || l.Cut {
		return false
	}
	if l.Proto == UDP && l.Version == 4 && b[l.L4+6] == 0 && b[l.L4+7] == 0 {
		return true
	}
	return Fold(Sum(l.pseudo(b), b[l.L4:l.End])) == 0xffff
}
