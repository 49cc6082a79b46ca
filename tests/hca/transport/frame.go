package transport

import "encoding/binary"

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	protoTCP  = 6
	protoUDP  = 17
)

// layers finds the headers of a frame; 0 is none.
func layers(f []byte) (typ uint16, l3, l4 int, proto byte) {
	at := 12
	if len(f) >= 18 && binary.BigEndian.Uint16(f[at:]) == etherVLAN {
		at += 4
	}
	if len(f) < at+2 {
		return
	}
	typ, l3 = binary.BigEndian.Uint16(f[at:]), at+2
	switch {
	case typ == etherIPv4 && len(f) >= l3+20:
		n := int(f[l3]&0xf) * 4
		if n >= 20 && len(f) >= l3+n {
			proto, l4 = f[l3+9], l3+n
		}
	case typ == etherIPv6 && len(f) >= l3+40:
		proto, l4 = f[l3+6], l3+40
	default:
		return typ, 0, 0, 0
	}
	if proto == protoTCP && len(f) < l4+20 || proto == protoUDP && len(f) < l4+8 {
		l4 = 0
	}
	return typ, l3, l4, proto
}

// sum adds big-endian words as Internet checksums do, not folded.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}

// pseudo is the sum of what TCP and UDP checksums cover beyond themselves.
func pseudo(f []byte, typ uint16, l3, l4 int, proto byte) uint32 {
	s := uint32(proto) + uint32(len(f)-l4)
	if typ == etherIPv4 {
		return sum(s, f[l3+12:l3+20])
	}
	return sum(s, f[l3+8:l3+40])
}

// Bits of cs_flags.
const (
	checkL3 = 1 << 6
	checkL4 = 1 << 7
)

// checksum writes the checksums that are asked for.
func checksum(f []byte, checks uint8) {
	typ, l3, l4, proto := layers(f)
	if checks&checkL3 != 0 && typ == etherIPv4 && l4 != 0 {
		binary.BigEndian.PutUint16(f[l3+10:], 0)
		binary.BigEndian.PutUint16(f[l3+10:], fold(sum(0, f[l3:l4])))
	}
	if checks&checkL4 == 0 || l4 == 0 {
		return
	}
	at := l4 + 16
	if proto == protoUDP {
		at = l4 + 6
	} else if proto != protoTCP {
		return
	}
	binary.BigEndian.PutUint16(f[at:], 0)
	c := fold(sum(pseudo(f, typ, l3, l4, proto), f[l4:]))
	if c == 0 && proto == protoUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(f[at:], c)
}

// inspect checks a received frame, for hds_ip_ext and l4_l3_hdr_type.
func inspect(f []byte) (ok, types uint8) {
	ok = frameL2
	typ, l3, l4, proto := layers(f)
	switch {
	case typ == etherIPv4 && l4 != 0:
		types = 2 << 2
		if fold(sum(0, f[l3:l4])) == 0 {
			ok |= frameL3
		}
	case typ == etherIPv6 && l4 != 0:
		types = 1 << 2
		ok |= frameL3
	default:
		return ok, 0
	}
	if proto != protoTCP && proto != protoUDP {
		return ok, types
	}
	if proto == protoTCP {
		types |= 1 << 4
	} else {
		types |= 2 << 4
	}
	if fold(sum(pseudo(f, typ, l3, l4, proto), f[l4:])) == 0 {
		ok |= frameL4
	}
	return ok, types
}

// segmentTCP makes a frame of a large TCP segment's: lengths, the identification
// that counts up, the sequence number, and flags that only the last has.
func segmentTCP(f []byte, off, i int, last bool) {
	typ, l3, l4, proto := layers(f)
	if l4 == 0 || proto != protoTCP {
		return
	}
	if typ == etherIPv4 {
		binary.BigEndian.PutUint16(f[l3+2:], uint16(len(f)-l3))
		binary.BigEndian.PutUint16(f[l3+4:], binary.BigEndian.Uint16(f[l3+4:])+uint16(i))
	} else {
		binary.BigEndian.PutUint16(f[l3+4:], uint16(len(f)-l4))
	}
	binary.BigEndian.PutUint32(f[l4+4:], binary.BigEndian.Uint32(f[l4+4:])+uint32(off))
	if !last {
		f[l4+13] &^= 1 | 8 // FIN, PSH
	}
}
