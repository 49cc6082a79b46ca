package cq

import "encoding/binary"

// A MatchOp is what tag matching reports in a CQE (app_op).
type MatchOp uint8

const (
	MatchConsumed     MatchOp = 0x1 // a message matched, its data will follow
	MatchExpected     MatchOp = 0x2 // the data of such a message is there
	MatchUnexpected   MatchOp = 0x3
	MatchNoTag        MatchOp = 0x4
	MatchAppend       MatchOp = 0x5
	MatchRemove       MatchOp = 0x6
	MatchNop          MatchOp = 0x7
	MatchConsumedMsg  MatchOp = 0xa // a message matched, and its data is there
	MatchSoftwareRndv MatchOp = 0xb // a message matched whose data software must fetch
	MatchCanceled     MatchOp = 0xc
)

// Match has the fields of a CQE about tag matching. Op is 0 in others.
type Match struct {
	Op    MatchOp
	Index uint16 // of the tag

	// of a message that matched
	HeaderOp uint8
	App      uint32
	Tag      uint64

	// of an operation on the list
	Success bool
	Phase   uint16 // the number of unexpected messages
}

const appMatching = 1

func (m *Match) put(b *[64]byte) {
	if m.Op == 0 {
		return
	}
	be := binary.BigEndian
	b[40], b[41] = appMatching, byte(m.Op)
	be.PutUint16(b[42:], m.Index)
	switch m.Op {
	case MatchAppend, MatchRemove, MatchNop:
		if m.Success {
			b[0] = 1 << 7
		}
		be.PutUint16(b[4:], m.Phase)
	case MatchConsumed, MatchConsumedMsg, MatchSoftwareRndv:
		b[0] = m.HeaderOp
		be.PutUint32(b[4:], m.App)
		be.PutUint64(b[8:], m.Tag)
	}
}
