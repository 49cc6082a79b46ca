package wqe

// A Segment is 16 bytes of a WQE, as two numbers in memory order.
type Segment [2]uint64

// An Opcode is what a send WQE does (MLX5_OPCODE_*).
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
)

// What the flags byte of a control segment says (MLX5_WQE_CTRL_*).
const (
	CtrlSolicited  = 1 << 1
	CtrlCQUpdate   = 2 << 2 // complete on the CQ
	CtrlSmallFence = 1 << 5 // after the UMR before it
	CtrlFence      = 4 << 5 // after all RDMA reads and atomics before it
)

// Masked8 is the modifier of masked atomics of 8 bytes.
const Masked8 = 8 | 1

// InvalidLKey ends a scatter list that is shorter than its WQE
// (MLX5_INVALID_LKEY).
const InvalidLKey = 0x100

// ExtendedAV tells that an address vector has all 48 bytes
// (MLX5_EXTENDED_UD_AV).
const ExtendedAV = 0x80000000

// Control writes the segment that each send WQE begins with: index is the
// number of its first block, of which 16 bits count; qpnDS is the QP number
// times 256 plus the number of segments, imm the immediate or the key to
// invalidate; modifier refines the opcode, stream is a DCI's.
func (s *Segment) Control(index uint32, modifier uint8, op Opcode, qpnDS uint32, stream uint16, flags uint8, imm uint32) {
	s[0] = be64(uint64(modifier)<<56 | uint64(index&0xffff)<<40 | uint64(op)<<32 | uint64(qpnDS))
	s[1] = be64(uint64(stream)<<40 | uint64(flags)<<32 | uint64(imm))
}

// ControlHead is Control with opcode and qpnDS together, as ControlOf returns
// them.
func (s *Segment) ControlHead(index uint32, head uint64, flags uint8, imm uint32) {
	s[0] = be64(uint64(index&0xffff)<<40 | head)
	s[1] = be64(uint64(flags)<<32 | uint64(imm))
}

// ControlOf reads the first half of a control segment.
func (s *Segment) ControlOf() (opcode, qpnDS uint32) {
	v := be64(s[0])
	return uint32(v >> 32), uint32(v)
}

// Segments reads from a control segment how many segments the WQE has.
func (s *Segment) Segments() uint32 { return uint32(be64(s[0])) & 0x3f }

// Sign sets the signature in a WQE's control segment, once all else is written.
func Sign(w []Segment) {
	w[0][1] |= uint64(^fold(w)) // its first byte
}

// SignRecv writes the signature with which a receive begins, which is clear but
// for its list; qpn and the receive's number are signed along.
func (s *Segment) SignRecv(w []Segment, qpn uint32, index uint16) {
	number := Segment{uint64(qpn) | uint64(index)<<32}
	signature := ^fold(w) ^ ^fold([]Segment{{number[0] & 0xffffffff}}) ^ ^fold([]Segment{{number[0] >> 32}})
	s[0] |= uint64(signature) << 32
}

// fold is the exclusive or of all bytes.
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

// RemoteAddr writes where an RDMA operation or an atomic goes.
func (s *Segment) RemoteAddr(addr uint64, rkey uint32) {
	s[0], s[1] = be64(addr), be64(uint64(rkey)<<32)
}

// Atomic writes the operands of an atomic of 8 bytes: the value to swap in or
// to add, and the one to compare with. A masked fetch and add has the highest
// bits of its fields in place of the latter; after a masked compare and swap's
// operands come, in a second such segment, the masks.
func (s *Segment) Atomic(swapAdd, compare uint64) {
	s[0], s[1] = be64(swapAdd), be64(compare)
}

// Data writes one piece of memory.
func (s *Segment) Data(length, lkey uint32, addr uint64) {
	s[0], s[1] = be64(uint64(length)<<32|uint64(lkey)), be64(addr)
}

// DataHead is Data with length and lkey together.
func (s *Segment) DataHead(head, addr uint64) {
	s[0], s[1] = be64(head), be64(addr)
}

// End closes a scatter list.
func (s *Segment) End() {
	s[0], s[1] = be64(InvalidLKey), 0
}

// DataOf reads a data segment.
func (s *Segment) DataOf() (length, lkey uint32, addr uint64) {
	head := be64(s[0])
	return uint32(head >> 32), uint32(head), be64(s[1])
}

// SRQN writes an XRC segment: the peer's SRQ.
func (s *Segment) SRQN(srqn uint32) {
	s[0], s[1] = be64(uint64(srqn)<<32), 0
}

// InlineHeader is the length of what precedes inline data.
const InlineHeader = 4

// Inline writes the head of inline data, which begins 4 bytes into the segment;
// the rest of the segment is left alone.
func (s *Segment) Inline(length int) {
	s[0] = s[0]&^0xffffffff | uint64(be32(uint32(length)|0x80000000))
}

// Segments returns how many segments inline data takes.
func InlineSegments(length int) int {
	return (length + InlineHeader + SegmentSize - 1) / SegmentSize
}

// Next writes the segment that a receive in an SRQ begins with: the index of
// the one to use after it.
func (s *Segment) Next(index uint16) {
	s[0], s[1] = uint64(be32(uint32(index))), 0
}

// NextOf reads it.
func (s *Segment) NextOf() uint16 { return uint16(be32(uint32(s[0]))) }
