package wqe

// A Segment is 16 bytes of a WQE, as two numbers in the device's byte order.
type Segment [2]uint64

// An Opcode is the operation of a send WQE (MLX5_OPCODE_*).
type Opcode uint8

const (
	OpNop          Opcode = 0x00
	OpSendInval    Opcode = 0x01
	OpRDMAWrite    Opcode = 0x08
	OpRDMAWriteImm Opcode = 0x09
	OpSend         Opcode = 0x0a
	OpSendImm      Opcode = 0x0b
	OpTSO          Opcode = 0x0e
	OpRDMARead     Opcode = 0x10
	OpAtomicCS     Opcode = 0x11
	OpAtomicFA     Opcode = 0x12
	OpMaskedCS     Opcode = 0x14
	OpMaskedFA     Opcode = 0x15
	OpUMR          Opcode = 0x25
	OpTags         Opcode = 0x28
)

// The flags of a control segment (MLX5_WQE_CTRL_*).
const (
	CtrlSolicited  = 1 << 1
	CtrlCQUpdate   = 2 << 2 // generate a completion
	CtrlSmallFence = 1 << 5 // wait for the UMR before it
	CtrlFence      = 4 << 5 // wait for all RDMA reads and atomics before it
)

// Masked8 is the modifier of masked atomics of 8 bytes.
const Masked8 = 8 | 1

// InvalidLKey ends a scatter list that is shorter than its WQE
// (MLX5_INVALID_LKEY).
const InvalidLKey = 0x100

// ExtendedAV marks an address vector of the full 48 bytes (MLX5_EXTENDED_UD_AV).
const ExtendedAV = 0x80000000

// Control writes the first segment of a send WQE. index is the number of its first block,
// of which the lower 16 bits are used. modifier refines the opcode. qpnDS is the QP number
// times 256 plus the number of segments. stream is a DCI's stream. imm is the immediate, or
// the key to invalidate.
func (s *Segment) Control(index uint32, modifier uint8, op Opcode, qpnDS uint32, stream uint16, flags uint8, imm uint32) {
	s[0] = be64(uint64(modifier)<<56 | uint64(index&0xffff)<<40 | uint64(op)<<32 | uint64(qpnDS))
	s[1] = be64(uint64(stream)<<40 | uint64(flags)<<32 | uint64(imm))
}

// ControlHead is like Control, with opcode and qpnDS in one number.
func (s *Segment) ControlHead(index uint32, head uint64, flags uint8, imm uint32) {
	s[0] = be64(uint64(index&0xffff)<<40 | head)
	s[1] = be64(uint64(flags)<<32 | uint64(imm))
}

// Flags returns the flags of a control segment.
func (s *Segment) Flags() uint8 { return uint8(be64(s[1]) >> 32) }

// Own sets the number, the QP and the flags of a control segment that the program has written,
// and clears its signature: see Control.
func (s *Segment) Own(index, qpnDS uint32, flags uint8) {
	s[0] = be64(be64(s[0])&^(0xffff<<40|0xffffffff) | uint64(index&0xffff)<<40 | uint64(qpnDS))
	s[1] = be64(be64(s[1])&^(0xff<<56|0xff<<32) | uint64(flags)<<32)
}

// ControlOf decodes the first half of a control segment.
func (s *Segment) ControlOf() (opcode, qpnDS uint32) {
	v := be64(s[0])
	return uint32(v >> 32), uint32(v)
}

// Segments returns the number of a WQE's segments, from its control segment.
func (s *Segment) Segments() uint32 { return uint32(be64(s[0])) & 0x3f }

// Sign sets the signature in a WQE's control segment. All other bytes must have been written.
func Sign(w []Segment) {
	w[0][1] |= uint64(^fold(w)) // its first byte
}

// SignRecv writes the signature at the start of a receive, which must be zero except for
// its list. The signature covers qpn and the receive's number, too.
func (s *Segment) SignRecv(w []Segment, qpn uint32, index uint16) {
	number := Segment{uint64(qpn) | uint64(index)<<32}
	signature := ^fold(w) ^ ^fold([]Segment{{number[0] & 0xffffffff}}) ^ ^fold([]Segment{{number[0] >> 32}})
	s[0] |= uint64(signature) << 32
}

// fold returns the exclusive or of all bytes.
func fold(w []Segment) (x uint8) {
	var words uint64
	for i := range w {
		words ^= w[i][0] ^ w[i][1]
	}
	for ; words != 0; words >>= 8 {
		x ^= uint8(words)
	}
	return x
}

// RemoteAddr writes the remote address of an RDMA operation or an atomic.
func (s *Segment) RemoteAddr(addr uint64, rkey uint32) {
	s[0], s[1] = be64(addr), be64(uint64(rkey)<<32)
}

// Atomic writes the operands of an atomic of 8 bytes: the value to swap in or to add, and
// the value to compare with. For a masked fetch and add, compare has the highest bits of
// its fields. A masked compare and swap has a second segment like this, with the masks.
func (s *Segment) Atomic(swapAdd, compare uint64) {
	s[0], s[1] = be64(swapAdd), be64(compare)
}

// Data writes a data segment, which describes one piece of memory.
func (s *Segment) Data(length, lkey uint32, addr uint64) {
	s[0], s[1] = be64(uint64(length)<<32|uint64(lkey)), be64(addr)
}

// DataHead is like Data, with length and lkey in one number.
func (s *Segment) DataHead(head, addr uint64) {
	s[0], s[1] = be64(head), be64(addr)
}

// End terminates a scatter list.
func (s *Segment) End() {
	s[0], s[1] = be64(InvalidLKey), 0
}

// DataOf decodes a data segment.
func (s *Segment) DataOf() (length, lkey uint32, addr uint64) {
	head := be64(s[0])
	return uint32(head >> 32), uint32(head), be64(s[1])
}

// SRQN writes an XRC segment: the peer's SRQ.
func (s *Segment) SRQN(srqn uint32) {
	s[0], s[1] = be64(uint64(srqn)<<32), 0
}

// InlineHeader is the length of the header before inline data.
const InlineHeader = 4

// Inline writes the header of inline data. The data begins 4 bytes into the segment. The
// rest of the segment is unchanged.
func (s *Segment) Inline(length int) {
	s[0] = s[0]&^0xffffffff | uint64(be32(uint32(length)|0x80000000))
}

// InlineSegments returns the number of segments that inline data takes.
func InlineSegments(length int) int {
	return (length + InlineHeader + SegmentSize - 1) / SegmentSize
}

// Next writes the first segment of a receive in an SRQ: the index of the next receive.
func (s *Segment) Next(index uint16) {
	s[0], s[1] = uint64(be32(uint32(index))), 0
}

// NextOf decodes the index that Next has written.
func (s *Segment) NextOf() uint16 { return uint16(be32(uint32(s[0]))) }
