package dgram

import (
	"encoding/binary"
	"net/netip"
)

// Each message over RDMA begins with the sender's address and port.
const (
	header4 = 8
	header6 = 24
)

// appendHeader appends a message's header. It has the IP version, its own length, the port, and the
// address, for IPv6 after the flow information.
func appendHeader(b []byte, from netip.AddrPort) []byte {
	length := headerLen(from.Addr())
	version := byte(4)
	if length == header6 {
		version = 6
	}
	b = append(b, version, byte(length))
	b = binary.BigEndian.AppendUint16(b, from.Port())
	if version == 6 {
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, from.Addr().AsSlice()...)
}

func headerLen(a netip.Addr) int {
	if a.Is4() {
		return header4
	}
	return header6
}

// cutHeader returns the sender and the rest of a message.
func cutHeader(b []byte) (from netip.AddrPort, rest []byte, ok bool) {
	if len(b) < header4 {
		return from, nil, false
	}
	length, at := int(b[1]), 4
	switch {
	case b[0] == 4 && length == header4:
	case b[0] == 6 && length == header6 && len(b) >= header6:
		at = 8
	default:
		return from, nil, false
	}
	addr, _ := netip.AddrFromSlice(b[at:length])
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[2:])), b[length:], true
}

// A greeting precedes each message over UDP. It has the number of the sender's queue pair, and ends with
// the sender's address.
const (
	greetingTag  = 0x55555555
	greeting4    = 16
	greeting6    = 28
	greetingData = 0 // a message follows
	greetingOnly = 7 // the answer
)

func appendGreeting(b []byte, what byte, qpn uint32, from netip.Addr) []byte {
	version, length := byte(4), byte(greeting4)
	if !from.Is4() {
		version, length = 6, greeting6
	}
	b = binary.BigEndian.AppendUint32(b, greetingTag)
	b = append(b, version, what, length, 0)
	b = binary.BigEndian.AppendUint32(b, qpn)
	return append(b, from.AsSlice()...)
}

// cutGreeting returns the contents of a greeting, and the rest of the datagram.
func cutGreeting(b []byte, from netip.Addr) (what byte, qpn uint32, rest []byte, ok bool) {
	version, length := byte(4), greeting4
	if !from.Is4() {
		version, length = 6, greeting6
	}
	if len(b) < length || binary.BigEndian.Uint32(b) != greetingTag || b[4] != version || int(b[6]) != length {
		return 0, 0, nil, false
	}
	return b[5], binary.BigEndian.Uint32(b[8:]) & 0xffffff, b[length:], true
}
