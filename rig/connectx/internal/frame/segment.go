package frame

import "encoding/binary"

// Segment turns b, which has the headers of a large send and its i-th part from offset off
// on, into a valid frame. It sets the lengths, the increasing IPv4 identification, and TCP's
// sequence number and flags, some of which only the last part has.
func Segment(b []byte, off, i int, last bool) {
	l3 := 14
	typ := binary.BigEndian.Uint16(b[12:])
	for (typ == TypeVLAN || typ == TypeQinQ) && l3+4 <= len(b) {
		typ = binary.BigEndian.Uint16(b[l3+2:])
		l3 += 4
	}
	// The lengths are those of the whole, or arbitrary. Set them before anything reads
	// the rest.
	switch {
	case typ == TypeIPv4 && l3+20 <= len(b):
		binary.BigEndian.PutUint16(b[l3+2:], uint16(len(b)-l3))
		binary.BigEndian.PutUint16(b[l3+4:], binary.BigEndian.Uint16(b[l3+4:])+uint16(i))
	case typ == TypeIPv6 && l3+40 <= len(b):
		binary.BigEndian.PutUint16(b[l3+4:], uint16(len(b)-l3-40))
	}
	l := Parse(b, 0)
	if !l.Ports() {
		return
	}
	if l.Proto == UDP {
		binary.BigEndian.PutUint16(b[l.L4+4:], uint16(l.End-l.L4))
		return
	}
	binary.BigEndian.PutUint32(b[l.L4+4:], binary.BigEndian.Uint32(b[l.L4+4:])+uint32(off))
	if !last {
		const fin, psh = 1, 8
		b[l.L4+13] &^= fin | psh
	}
}

// Strip returns the parts of a frame before and after its outermost VLAN tag, and the tag.
// It reports false if there is none.
func Strip(b []byte) (addresses, rest []byte, tci uint16, ok bool) {
	if len(b) < Min+4 || binary.BigEndian.Uint16(b[12:]) != TypeVLAN {
		return nil, nil, 0, false
	}
	return b[:12], b[16:], binary.BigEndian.Uint16(b[14:]), true
}
