package wqe

// Completions that differ in little can be written as one title and arrays of
// mini CQEs. The title's byte count is their number; the first array is in the
// entry after the title, the others in every eighth from the title on. All of
// them take as many entries as there are completions, so that what they stand
// for can be written in their place.

// MiniArray is how many mini CQEs are in the place of a CQE.
const MiniArray = 8

// A Mini is what a completion has of its own (struct mlx5_mini_cqe8): in its
// first word, of a send the WQE's counter and opcode, of a receive a hash or
// checksum and, in one format, the WQE's counter; then its byte count.
type Mini [2]uint32

// A MiniFormat says what the first words of receives' mini CQEs hold
// (MLX5DV_CQE_RES_FORMAT_*).
type MiniFormat uint8

const (
	MiniHash     MiniFormat = 1 << 0
	MiniChecksum MiniFormat = 1 << 1
	MiniStride   MiniFormat = 1 << 2 // checksum and counter
)

// Minis reads an entry that is an array.
func (c *CQE) Minis() (m [MiniArray]Mini) {
	for i := range 4 {
		m[i] = Mini{uint32(c.head[i]), uint32(c.head[i] >> 32)}
	}
	m[4] = Mini{c.srqnUIDX, c.imm}
	m[5] = Mini{c.app, c.byteCount}
	m[6] = Mini{uint32(c.timestamp), uint32(c.timestamp >> 32)}
	m[7] = Mini{c.opQPN, c.tail}
	return m
}

// Expand makes the CQE the i-th of those that a title and its mini CQE stand
// for, in a round of the ring.
func (c *CQE) Expand(title *CQE, m Mini, i uint32, format MiniFormat, round uint32) {
	counter := be32(title.tail)>>16 + i
	*c = *title
	c.byteCount = m[1]
	head := be32(m[0])
	switch op := Tail(title.tail).Opcode(); {
	case op == CQERequester:
		counter = head >> 16
		c.opQPN = c.opQPN&^0xff | head>>8&0xff
	case format == MiniStride:
		counter = head
	}
	c.tail = be32(counter<<16)&0xffff | uint32(Tail(title.tail).Opcode())<<28 | round&1<<24
}
