package wqe

// The checksum offloads of an Ethernet segment (MLX5_ETH_WQE_*).
const (
	EthL3Checksum = 1 << 6
	EthL4Checksum = 1 << 7
)

// The offset of the inline header in the Ethernet segment, whose first 16 bytes have room
// for 2 bytes of it, and the maximum length that a device requires.
const (
	EthHeaderOffset = 14
	EthHeaderInline = 18
)

// EthSegments returns the number of segments that an Ethernet segment takes with an inline
// header of this length.
func EthSegments(header int) int {
	return (EthHeaderOffset + header + SegmentSize - 1) / SegmentSize
}

// Ethernet writes the first part of an Ethernet segment. The header's bytes
// follow at EthHeaderOffset.
func (s *Segment) Ethernet(checksums uint8, mss uint16, header int) {
	s[0] = be64(uint64(checksums)<<24 | uint64(mss))
	s[1] = be64(uint64(header) << 16)
}
