package steering

import (
	"bytes"
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
)

// Function is how a hash is computed, rx_hash_fn.
type Function uint8

const (
	HashNone     Function = 0
	HashXOR      Function = 1 // of 8 bits, inverted
	HashToeplitz Function = 2
)

// Hash distributes frames among receive queues.
type Hash struct {
	Function  Function
	Symmetric bool // both directions of a connection have the same hash
	Key       [40]byte
	IPv6      bool // l3_prot_type: of IPv6 packets, not of IPv4 ones
	UDP       bool // l4_prot_type: the ports are UDP's, not TCP's
	Fields    uint32
}

// Fields of a packet, selected_fields.
const (
	hashSource = 1 << iota
	hashDestination
	hashSourcePort
	hashDestinationPort
	hashSPI // of IPsec

	// HashFields has all fields that can be selected.
	HashFields = 1<<iota - 1
)

// Of returns a frame's hash, and the hash type in completions (rss_hash_type), which is 0
// if the hash isn't for this kind of frame.
func (h *Hash) Of(b []byte) (value uint32, kind uint8) {
	if h.Fields == 0 {
		return 0, 0
	}
	l := frame.Parse(b, 0)
	input, kind := h.input(b, &l)
	if kind == 0 {
		return 0, 0
	}
	switch h.Function {
	case HashToeplitz:
		return toeplitz(h.Key[:], input), kind
	case HashXOR:
		var x byte
		for _, v := range input {
			x ^= v
		}
		return uint32(^x), kind
	}
	return 0, 0
}

func (h *Hash) input(b []byte, l *frame.Layers) (input []byte, kind uint8) {
	const ipv4, ipv6, tcp, udp = 1 << 2, 2 << 2, 1 << 6, 2 << 6
	var source, destination []byte
	switch {
	case l.Version == 4 && !h.IPv6:
		kind = ipv4
		source, destination = b[l.Header+12:l.Header+16], b[l.Header+16:l.Header+20]
	case l.Version == 6 && h.IPv6:
		kind = ipv6
		source, destination = b[l.Header+8:l.Header+24], b[l.Header+24:l.Header+40]
	default:
		return nil, 0
	}
	input = h.pair(input, source, destination, h.Fields&hashSource != 0, h.Fields&hashDestination != 0)
	if h.Fields&hashSPI != 0 {
		spi := l.SPI(b)
		if spi == nil {
			return nil, 0
		}
		input = append(input, spi...)
	}
	if h.Fields&(hashSourcePort|hashDestinationPort) == 0 {
		return input, kind
	}
	want := uint8(frame.TCP)
	if h.UDP {
		want = frame.UDP
	}
	if !l.Ports() || l.Proto != want {
		return nil, 0
	}
	kind |= tcp
	if h.UDP {
		kind += udp - tcp
	}
	ports := b[l.L4:]
	return h.pair(input, ports[:2], ports[2:4], h.Fields&hashSourcePort != 0, h.Fields&hashDestinationPort != 0), kind
}

// pair appends the selected ones of source and destination.
func (h *Hash) pair(input, source, destination []byte, first, second bool) []byte {
	if h.Symmetric && first && second && bytes.Compare(source, destination) > 0 {
		source, destination = destination, source
	}
	if first {
		input = append(input, source...)
	}
	if second {
		input = append(input, destination...)
	}
	return input
}

// toeplitz computes the Toeplitz hash: for each set bit of the input, it adds the 32 bits
// of the key from that bit on.
func toeplitz(key, input []byte) (sum uint32) {
	window := binary.BigEndian.Uint64(key)
	for i, v := range input {
		for bit := range 8 {
			if v<<bit&0x80 != 0 {
				sum ^= uint32(window << bit >> 32)
			}
		}
		window <<= 8
		if next := i + 8; next < len(key) {
			window |= uint64(key[next])
		}
	}
	return sum
}
