package cq

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/internal/bus"
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
	NoPacket          Kind = 6 // of an operation on a list of tags
	RequesterError    Kind = 13
	ResponderError    Kind = 14
	Invalid           Kind = 15 // software initializes entries with it
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

// Tagged is the bit of L4L3Type that says that VLAN is valid.
const Tagged = 1

// Completion has the contents of a CQE.
type Completion struct {
	Kind Kind
	QPN  uint32
	// UserIndex is the CQE's srqn field, which identifies the resource to the
	// driver. In CQE version 1, it is the user_index of the QP, or of the SRQ
	// for an XRC receiver or a DCT. In version 0, it is the number of the SRQ
	// that the receive WQE is from, else 0.
	UserIndex  uint32
	WQEOpcode  uint8  // of a requester, MLX5_OPCODE_*
	WQECounter uint16 // of the send or receive WQE, or the SRQ WQE's index
	ByteCount  uint32
	// Imm is the immediate data as the wire's big-endian word, the
	// invalidated key, or the P_Key of a message to a GSI QP.
	Imm uint32
	// Solicited: the completion causes an event on a queue armed for solicited
	// completions. Errors always do.
	Solicited bool

	// of a responder
	RemoteQPN uint32
	SLID      uint16
	SL        uint8 // over RoCE the kind of header, MLX5_CQE_ROCE_L3_HEADER_TYPE_*
	PathBits  uint8
	GRH       bool   // the receive buffer has a GRH
	L4L3Type  uint8  // a raw packet's headers; Tagged
	VLAN      uint16 // the tag

	// of a received raw packet; FlowTag replaces QPN
	Packet   bool
	FlowTag  uint32
	RSSHash  uint32
	RSSType  uint8
	HdsIPExt uint8 // CQE_L2_OK, CQE_L3_OK, CQE_L4_OK
	Checksum uint16

	// Inline is payload in the CQE instead of in the WQE's buffers: at most 32
	// bytes, or 64 in a CQE of 128 bytes. A QP's cs_req and cs_res request it.
	Inline []byte

	Match Match // of a queue with tag matching

	// RealTime: the timestamp is in seconds and nanoseconds, not ticks.
	RealTime bool

	// of an error
	Syndrome, VendorSyndrome uint8
}

// wants reports whether the completion causes an event on a queue that is armed for
// solicited completions.
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

// put writes the completion to an entry, whose last 64 bytes are cqe. It writes the owner
// bit last.
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

// finish writes b and the fields that all formats have.
func finish(cqe []byte, b *[64]byte, c *Completion, format, owner byte) {
	last := uint32(c.WQECounter)<<16 | uint32(c.Kind)<<4 | uint32(format)<<2 | uint32(owner)
	if c.Solicited {
		last |= 2
	}
	copy(cqe[:60], b[:])
	bus.Store32(cqe[60:], last)
}

// fields fills in struct mlx5_cqe64 or struct mlx5_err_cqe, except for the last word.
func (c *Completion) fields(b *[64]byte, timestamp uint64) {
	be := binary.BigEndian
	be.PutUint32(b[32:], c.UserIndex&indexMask)
	be.PutUint32(b[56:], uint32(c.WQEOpcode)<<24|c.QPN&indexMask)
	if c.Kind == RequesterError || c.Kind == ResponderError {
		b[54], b[55] = c.VendorSyndrome, c.Syndrome
		return
	}
	be.PutUint32(b[12:], c.RSSHash)
	c.Match.put(b)
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
