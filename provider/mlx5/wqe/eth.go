package wqe

// The checksum offloads of an Ethernet segment (MLX5_ETH_WQE_*).
const (
	EthL3Checksum = 1 << 6
	EthL4Checksum = 1 << 7
)

// EthHeaderOffset is the offset of the inline header in the Ethernet segment: 2 bytes of
// the header fit in the segment's first 16 bytes. EthHeaderInline is the maximum length
// that a device requires.
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
