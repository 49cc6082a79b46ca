// Package cq is a completion queue of the HCA: it writes completion queue
// entries as struct mlx5_cqe64 of include/linux/mlx5/device.h lays them out,
// and tells when an event is due.
package cq

import (
	"time"

	"github.com/goverbs/goverbs/tests/hca/bus"
)

// Config is what CREATE_CQ says of a queue.
type Config struct {
	Number        uint32
	Memory        bus.Memory
	Buffer        bus.Buffer
	LogSize       uint
	Size          Size
	DBR           uint64 // dbr_addr: the consumer index, then the arm word
	IgnoreOverrun bool   // oi
	Compress      bool   // cqe_comp_en
	Format        uint8  // mini_cqe_res_format: 0 hash, 1 checksum, 3 checksum and stride index
	FromCQE       bool   // cq_period_mode: the period restarts with each CQE, not with each event
	Period        uint16 // microseconds
	MaxCount      uint16
	// Timestamp is the HCA's clock for the CQE, in its ticks (nil: 0).
	Timestamp func() uint64
	// Event posts the queue's completion EQE.
	Event func()
	// Error posts MLX5_EVENT_TYPE_CQ_ERROR with the syndrome.
	Error func(syndrome uint8)
}

// Size is cqe_sz of the queue's context.
type Size uint8

const (
	Size64     Size = 0
	Size128    Size = 1
	Size128Pad Size = 2 // 64 bytes of payload, padded to 128 when written
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
	NoPacket          Kind = 6
	SignatureError    Kind = 12
	RequesterError    Kind = 13
	ResponderError    Kind = 14
	Invalid           Kind = 15
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

// Completion is what a CQE says.
type Completion struct {
	Kind Kind
	QPN  uint32
	// UserIndex is what the driver finds the resource by: the QP's (or the
	// XRC SRQ's) user_index under CQE version 1; under version 0 the SRQ's
	// number for a responder with one, else 0. It goes to the CQE's srqn
	// field either way.
	UserIndex  uint32
	WQEOpcode  uint8  // of a requester, MLX5_OPCODE_*
	WQECounter uint16 // of the send WQE, of the receive WQE, or the SRQ WQE's index
	ByteCount  uint32
	Imm        uint32 // immediate data as the wire's big-endian word, or the invalidated key, or the flow tag's word
	Solicited  bool   // an event is due for a queue armed for solicited ones; errors always are

	// of a responder
	RemoteQPN uint32
	SLID      uint16
	SL        uint8
	PathBits  uint8
	GRH       bool
	RSSHash   uint32 // raw packets
	RSSType   uint8
	HdsIPExt  uint8 // checksum bits: CQE_L2_OK, CQE_L3_OK, CQE_L4_OK
	L4L3Type  uint8 // l4_l3_hdr_type
	VLAN      uint16
	Checksum  uint16 // check_sum
	FlowTag   uint32

	// Inline is payload that the CQE carries instead of the WQE's buffers: at
	// most 32 bytes in the CQE itself, at most 64 in a CQE of 128 bytes. What
	// a QP may ask for is its cs_req and cs_res.
	Inline []byte

	// of an error
	Syndrome, VendorSyndrome uint8
}

// CQ is a completion queue. It is for one goroutine.
type CQ struct {
	c Config
}

// New returns an empty queue, not armed.
func New(c Config) *CQ { return &CQ{c: c} }

// Number is what the queue was created with.
func (q *CQ) Number() uint32 { return q.c.Number }

// Post writes a completion. It keeps nothing of c.
func (q *CQ) Post(c *Completion, now time.Duration) {}

// Arm takes the arm doorbell's first word, as it was written at UAR offset
// 0x20 (the second word says which queue): sequence number, command and
// consumer index.
func (q *CQ) Arm(word uint32, now time.Duration) {}

// Tick does what is due by now, and returns when the queue wants to be called
// again (0: not until something else happens).
func (q *CQ) Tick(now time.Duration) (next time.Duration) { return 0 }

// Moderate changes the moderation: after count CQEs or period microseconds
// one event (MODIFY_CQ with MLX5_CQ_MODIFY_PERIOD and _COUNT).
func (q *CQ) Moderate(period, count uint16) {}

// IgnoreOverrun is MODIFY_CQ with MLX5_CQ_MODIFY_OVERRUN.
func (q *CQ) IgnoreOverrun(on bool) {}

// Resize moves the queue to another buffer (MODIFY_CQ with
// MLX5_CQ_OPMOD_RESIZE): a last CQE of kind ResizeCQ in the old one says so.
func (q *CQ) Resize(b bus.Buffer, logSize uint, s Size) error { return nil }

// State is the live part of the queue's context, for QUERY_CQ.
type State struct {
	Status       uint8 // 0 OK, 9 overflow, 10 write error
	ST           uint8 // 6 solicited armed, 9 armed, 10 fired
	Producer     uint32
	Consumer     uint32
	LastNotified uint32
	LastSolicit  uint32
}

// State returns it.
func (q *CQ) State() State { return State{} }
