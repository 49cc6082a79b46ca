package rawpacket

import (
	"encoding/binary"
	"net/netip"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

type mac [6]byte

var (
	macs  = [2]mac{{2, 0, 0, 0, 0, 0xa}, {2, 0, 0, 0, 0, 0xb}}
	addrs = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	every = mac{255, 255, 255, 255, 255, 255}
)

const (
	typeLocal = 0x88b5 // for experiments
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd

	protoTCP = 6
	protoUDP = 17

	ethLen, ipLen, tcpLen, udpLen = 14, 20, 20, 8
)

// to returns the spec that matches a destination address.
func to(m mac) verbs.FlowSpec {
	return verbs.FlowEth{Val: verbs.FlowEthFilter{DstMAC: m}, Mask: verbs.FlowEthFilter{DstMAC: every}}
}

func header(to, from mac, typ uint16) []byte {
	b := append(append(make([]byte, 0, mtu+ethLen), to[:]...), from[:]...)
	return binary.BigEndian.AppendUint16(b, typ)
}

// frame returns a frame with n bytes after its header.
func frame(to, from mac, n, seed int) []byte {
	return append(header(to, from, typeLocal), rdmatest.Pattern(n, seed)...)
}

// datagram returns a frame with a UDP datagram from one station to another, without
// checksums.
func datagram(to, from int, port uint16, data []byte) []byte {
	b := ipv4(to, from, protoUDP, udpLen+len(data))
	b = binary.BigEndian.AppendUint16(b, 4000)
	b = binary.BigEndian.AppendUint16(b, port)
	b = binary.BigEndian.AppendUint16(b, uint16(udpLen+len(data)))
	b = binary.BigEndian.AppendUint16(b, 0)
	return append(b, data...)
}

func ipv4(to, from int, proto byte, n int) []byte {
	b := header(macs[to], macs[from], typeIPv4)
	ip := make([]byte, ipLen)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(ipLen+n))
	src, dst := addrs[from].As4(), addrs[to].As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	return append(b, ip...)
}

// datagram6 is like datagram, over IPv6.
func datagram6(to, from netip.Addr, port uint16, data []byte) []byte {
	const ip6Len = 40
	b, ip := header(macs[1], macs[0], typeIPv6), make([]byte, ip6Len)
	ip[0], ip[6], ip[7] = 6<<4, protoUDP, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(udpLen+len(data)))
	src, dst := from.As16(), to.As16()
	copy(ip[8:], src[:])
	copy(ip[24:], dst[:])
	return append(append(b, ip...), datagram(1, 0, port, data)[ethLen+ipLen:]...)
}

// tcp returns the headers of a TCP segment.
func tcp(to, from int, sequence uint32) []byte {
	b := ipv4(to, from, protoTCP, tcpLen)
	h := make([]byte, tcpLen)
	binary.BigEndian.PutUint16(h, 4000)
	binary.BigEndian.PutUint16(h[2:], 5000)
	binary.BigEndian.PutUint32(h[4:], sequence)
	h[12], h[13] = 5<<4, 0x18 // length, ACK and PSH
	return append(b, h...)
}

// sum returns the sum of the Internet checksum, not inverted.
func sum(parts ...[]byte) uint16 {
	var s uint32
	for _, b := range parts {
		for i := 0; i < len(b); i++ {
			s += uint32(b[i]) << (8 * (1 - i&1))
		}
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// checksums reports whether the checksums of a TCP or UDP packet in a frame are right.
func checksums(f []byte) (ip, payload bool) {
	h := f[ethLen : ethLen+ipLen]
	data := f[ethLen+ipLen : ethLen+int(binary.BigEndian.Uint16(h[2:]))]
	pseudo := append(append([]byte{}, h[12:20]...), 0, h[9])
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(data)))
	return sum(h) == 0xffff, sum(pseudo, data) == 0xffff
}
