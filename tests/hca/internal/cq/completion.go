package cq

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/tests/hca/internal/bus"
)

// Kind is a CQE's opcode, MLX5_CQE_*.
type Kind uint8

const (
	Requester         Kind = 0
	ResponderWriteImm Kind = 1
	ResponderSend     Kind = 2
	ResponderSendImm  Kind = 3
	ResponderSendInv  Kind = 4
	ResizeCQ          Kind = 5
	RequesterError    Kind = 13
	ResponderError    Kind = 14
	Invalid           Kind = 15 // as software prepares entries
)

// Syndromes of error CQEs, MLX5_CQE_SYNDROME_*.
const (
	SyndromeLocalLength    = 0x01
	SyndromeLocalQPOp      = 0x02
	SyndromeLocalProt      = 0x04
	SyndromeFlush          = 0x05
	SyndromeMWBind         = 0x06
	SyndromeBadResp        = 0x10
	SyndromeLocalAccess    = 0x11
	SyndromeRemoteInvalReq = 0x12
	SyndromeRemoteAccess   = 0x13
	SyndromeRemoteOp       = 0x14
	SyndromeRetryExceeded  = 0x15
	SyndromeRNRExceeded    = 0x16
	SyndromeRemoteAborted  = 0x22
)

// Tagged is the bit of L4L3Type that VLAN counts.
const Tagged = 1

// Completion is what a CQE says.
type Completion struct {
	Kind Kind
	QPN  uint32
	// UserIndex is what the driver finds the resource by, and goes to the
	// CQE's srqn field: under CQE version 1 the user_index of the QP (of the
	// SRQ for a receiver in an XRC domain or of a DCT); under version 0 the
	// number of the SRQ that the receive WQE is from, else 0.
	UserIndex  uint32
	WQEOpcode  uint8  // of a requester, MLX5_OPCODE_*
	WQECounter uint16 // of the send WQE or the receive WQE, or the SRQ WQE's index
	ByteCount  uint32
	// Imm is the immediate data as the wire's big-endian word, the
	// invalidated key, or the P_Key of what a GSI QP received.
	Imm uint32
	// Solicited: a queue armed for solicited completions wants an event. It
	// always does for errors.
	Solicited bool

	// of a responder
	RemoteQPN uint32
	SLID      uint16
	SL        uint8 // over RoCE which header was there, MLX5_CQE_ROCE_L3_HEADER_TYPE_*
	PathBits  uint8
	GRH       bool   // it is in the receive buffer
	L4L3Type  uint8  // what headers a raw packet had; Tagged
	VLAN      uint16 // the tag

	// of a receive WQE that took a raw packet; FlowTag is in QPN's place then
	Packet   bool
	FlowTag  uint32
	RSSHash  uint32
	RSSType  uint8
	HdsIPExt uint8 // CQE_L2_OK, CQE_L3_OK, CQE_L4_OK
	Checksum uint16

	// Inline is payload that the CQE carries instead of the WQE's buffers: at
	// most 32 bytes, or in a CQE of 128 bytes at most 64. What a QP may ask
	// for is its cs_req and cs_res.
	Inline []byte

	// RealTime is how the timestamp is told: seconds and nanoseconds, not ticks.
	RealTime bool

	// of an error
	Syndrome, VendorSyndrome uint8
}

// wants says whether the completion makes an event for a queue that is armed
// for solicited ones.
func (c *Completion) wants() bool {
	return c.Solicited || c.Kind == RequesterError || c.Kind == ResponderError
}

// Formats of a CQE, bits 3:2 of its last byte.
const (
	formatPlain      = 0
	formatInline32   = 1
	formatInline64   = 2
	formatCompressed = 3
)

// put writes the completion to an entry, whose last 64 bytes cqe is: the owner
// bit last of all.
func (c *Completion) put(entry, cqe []byte, timestamp uint64, owner byte) {
	format := byte(formatPlain)
	var b [64]byte
	c.fields(&b, timestamp)
	switch {
	case len(c.Inline) == 0:
	case len(entry) == 64 || len(c.Inline) <= 32:
		format = formatInline32
		copy(b[:32], c.Inline)
	default:
		format = formatInline64
		copy(entry[:64], c.Inline)
	}
	finish(cqe, &b, c, format, owner)
}

// finish writes b, completed by what is common to all formats.
func finish(cqe []byte, b *[64]byte, c *Completion, format, owner byte) {
	last := uint32(c.WQECounter)<<16 | uint32(c.Kind)<<4 | uint32(format)<<2 | uint32(owner)
	if c.Solicited {
		last |= 2
	}
	copy(cqe[:60], b[:])
	bus.Store32(cqe[60:], last)
}

// fields fills in struct mlx5_cqe64 or struct mlx5_err_cqe, but for the last
// word.
func (c *Completion) fields(b *[64]byte, timestamp uint64) {
	be := binary.BigEndian
	be.PutUint32(b[32:], c.UserIndex&indexMask)
	be.PutUint32(b[56:], uint32(c.WQEOpcode)<<24|c.QPN&indexMask)
	if c.Kind == RequesterError || c.Kind == ResponderError {
		b[54], b[55] = c.VendorSyndrome, c.Syndrome
		return
	}
	be.PutUint32(b[12:], c.RSSHash)
	b[16] = c.RSSType
	b[17] = c.PathBits
	be.PutUint16(b[20:], c.Checksum)
	be.PutUint16(b[22:], c.SLID)
	flags := uint32(c.SL&0xf)<<24 | c.RemoteQPN&indexMask
	if c.GRH {
		flags |= 1 << 28
	}
	be.PutUint32(b[24:], flags)
	b[28], b[29] = c.HdsIPExt, c.L4L3Type
	be.PutUint16(b[30:], c.VLAN)
	be.PutUint32(b[36:], c.Imm)
	be.PutUint32(b[44:], c.ByteCount)
	be.PutUint64(b[48:], timestamp)
	if c.Packet {
		be.PutUint32(b[56:], c.FlowTag&indexMask)
	}
}
