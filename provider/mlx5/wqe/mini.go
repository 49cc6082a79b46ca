package wqe

// The device can write similar completions as one title CQE and arrays of mini CQEs. The
// title's byte count is the number of completions. The first array is in the entry after
// the title, and the others are in every eighth entry counted from the title. Together they
// take as many entries as there are completions, so they can be expanded in place.

// MiniArray is the number of mini CQEs in an array, which has the size of a CQE.
const MiniArray = 8

// A Mini has the fields in which a completion differs from its title (struct
// mlx5_mini_cqe8). For a send, the first word has the WQE's counter and opcode. For a
// receive, it has a hash or a checksum and, in one format, the WQE's counter. The second
// word is the byte count.
type Mini [2]uint32

// A MiniFormat is the format of the first word of a receive's mini CQE
// (MLX5DV_CQE_RES_FORMAT_*).
type MiniFormat uint8

const (
	MiniHash     MiniFormat = 1 << 0
	MiniChecksum MiniFormat = 1 << 1
	MiniStride   MiniFormat = 1 << 2 // checksum and counter
)

// Minis decodes an entry that is an array of mini CQEs.
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

// Expand sets the CQE to the i-th completion of a group, from the title and its mini CQE,
// in a round of the ring.
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
