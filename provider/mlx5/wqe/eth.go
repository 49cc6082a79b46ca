package wqe

// What an Ethernet segment asks the device to compute (MLX5_ETH_WQE_*).
const (
	EthL3Checksum = 1 << 6
	EthL4Checksum = 1 << 7
)

// Where the inline header begins in the Ethernet segment, whose first 16 bytes
// hold 2 bytes of it, and how much of it the device may want.
const (
	EthHeaderOffset = 14
	EthHeaderInline = 18
)

// EthSegments returns how many segments an Ethernet segment with an inline
// header of that many bytes takes.
func EthSegments(header int) int {
	return (EthHeaderOffset + header + SegmentSize - 1) / SegmentSize
}

// Ethernet writes the first part of an Ethernet segment. The header's bytes
// follow at EthHeaderOffset.
func (s *Segment) Ethernet(checksums uint8, mss uint16, header int) {
	s[0] = be64(uint64(checksums)<<24 | uint64(mss))
	s[1] = be64(uint64(header) << 16)
}
