package transport

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Service is a queue pair's transport service, MLX5_QP_ST_* (st of the QPC).
type Service uint8

const (
	RC     Service = 0x0
	UC     Service = 0x1
	UD     Service = 0x2
	XRC    Service = 0x3 // initiator if it has a send queue, target if not
	MLX    Service = 0x4
	DCI    Service = 0x5
	DCT    Service = 0x6 // made by CreateDCT only
	QP0    Service = 0x7
	QP1    Service = 0x8
	Raw    Service = 0x9
	RegUMR Service = 0xc
)

// State is a queue pair's state, MLX5_QP_STATE_*.
type State uint8

const (
	Reset State = 0
	Init  State = 1
	RTR   State = 2
	RTS   State = 3
	SQEr  State = 4
	SQD   State = 5
	Err   State = 6
)

// RQType is the source of receive WQEs, rq_type of the QPC.
type RQType uint8

const (
	OwnRQ    RQType = 0 // MLX5_NON_ZERO_RQ
	SharedRQ RQType = 1 // MLX5_SRQ_RQ: SRQ, RMP
	CRQ      RQType = 2
	NoRQ     RQType = 3 // MLX5_ZERO_LEN_RQ
)

// Path is an address path (ads).
type Path struct {
	PKeyIndex  uint16
	GRH        bool
	PathBits   uint8 // mlid
	DLID       uint16
	AckTimeout uint8
	SGIDIndex  uint8
	HopLimit   uint8
	TClass     uint8
	FlowLabel  uint32
	DGID       fabric.GID
	SL         uint8
	Port       uint8 // vhca_port_num, from 1; 0 is taken as 1

	// over RoCE, instead of LIDs and SL
	MAC      fabric.MAC
	Priority uint8
}

// QPContext is a queue pair's context (QPC), decoded.
type QPContext struct {
	State       State
	Service     Service
	PMState     uint8
	PD          uint32
	XRCD        uint32
	MTU         uint8 // 1: 256 … 5: 4096
	LogMsgMax   uint8
	WQSignature bool // receive WQEs begin with a signature segment
	BlockLBMC   bool
	NoSQ        bool
	LogSQSize   uint8 // of 64 bytes
	RQType      RQType
	LogRQSize   uint8
	LogRQStride uint8 // as in the QPC: 16<<LogRQStride bytes
	RLKey       bool
	UAR         uint32
	UserIndex   uint32
	RealTime    bool // timestamps of completions
	CounterSet  uint8
	RemoteQPN   uint32
	Primary     Path
	Alternate   Path

	LogAckReqFreq uint8
	LogSRAMax     uint8
	LogRRAMax     uint8
	RetryCount    uint8
	RNRRetry      uint8
	MinRNRNak     uint8
	AtomicMode    uint8
	RRE, RWE, RAE bool
	NextSendPSN   uint32
	NextRecvPSN   uint32
	CQNSend       uint32
	CQNRecv       uint32
	DethSQPN      uint32 // the source QP number that datagrams carry, if not 0
	QKey          uint32
	SRQN          uint32 // srqn_rmpn_xrqn
	DBRAddr       uint64
	CSReq, CSRes  uint8 // scatter to CQE, as in the QPC
	DCAccessKey   uint64

	// Of a DCI: the logarithm of how many streams run at once, which makes no difference
	// here, and of how many may be in error before the queue pair is.
	LogStreams, LogErroredStreams uint8

	Buffer bus.Buffer // receive queue first, then send queue

	// For QUERY_QP only; Create and Modify ignore these.
	LastAckedPSN uint32
	SSN          uint32
	HWSQCounter  uint16
	SWSQCounter  uint16
	HWRQCounter  uint32
	SWRQCounter  uint32
	CurRetry     uint8
	CurRNRRetry  uint8
}

// RingBytes returns the length of the queue pair's rings in its Buffer.
func (c *QPContext) RingBytes() (n uint64) {
	if c.RQType == OwnRQ {
		n = 16 << c.LogRQStride << c.LogRQSize
	}
	if !c.NoSQ {
		n += 64 << c.LogSQSize
	}
	return n
}

// SRQContext has the parameters of CREATE_SRQ, CREATE_XRC_SRQ, CREATE_RMP and CREATE_XRQ.
type SRQContext struct {
	XRC         bool // an XRC SRQ, with its own CQ and domain
	XRCD        uint32
	CQN         uint32
	UserIndex   uint32
	PD          uint32
	LogSize     uint8
	LogStride   uint8 // as in the SRQC: 16<<LogStride bytes (a WQ's log_wq_stride less 4)
	WQSignature bool
	TM          bool // it matches tags (CREATE_XRQ), and has its own CQ
	LogTags     uint8
	Cyclic      bool // a ring of WQEs without links (basic_cyclic_rcv_wqe, or a WQ of type cyclic)
	RLKey       bool
	LWM         uint16 // limit, 0 if not armed
	DBRAddr     uint64
	Buffer      bus.Buffer

	// Available is the number of posted WQEs, for QUERY_*; Create ignores it.
	Available uint16
	Bad       bool // its memory can't be read

	// of the list of tags, likewise
	NextTag                    uint16
	SoftwarePhase, DevicePhase uint16
}

// DCTContext is a DC target's context (DCTC), decoded.
type DCTContext struct {
	Draining      bool
	UserIndex     uint32
	CQN           uint32
	CounterSet    uint8
	AtomicMode    uint8
	RRE, RWE, RAE bool
	RLKey         bool
	CSRes         uint8
	MinRNRNak     uint8
	SRQN          uint32
	PD            uint32
	DCAccessKey   uint64
	MTU           uint8
	Port          uint8
	PKeyIndex     uint16
	SGIDIndex     uint8
	HopLimit      uint8
	TClass        uint8
	FlowLabel     uint32
	Priority      uint8 // over RoCE

	Violations uint32 // dc_access_key_violation_count; Create ignores it
}

// SQContext is a raw packet send queue (SQC with its WQ).
type SQContext struct {
	State     State // Reset, RTS or Err
	PD        uint32
	Port      uint8
	Domain    uint32 // the transport domain
	MinInline uint8  // how much of a frame must be inline in WQEs
	UAR       uint32
	RealTime  bool // timestamps
	CQN       uint32
	UserIndex uint32
	LogSize   uint8 // log_wq_sz, of 64 bytes
	RLKey     bool
	DBRAddr   uint64
	Buffer    bus.Buffer
}

// RQContext is a raw packet receive queue (RQC with its WQ).
type RQContext struct {
	State       State // Reset, RTS (which is RDY) or Err
	PD          uint32
	CQN         uint32
	UserIndex   uint32
	CounterSet  uint8
	LogSize     uint8
	LogStride   uint8 // 16<<LogStride bytes
	WQSignature bool
	StripVLAN   bool
	RealTime    bool // timestamps
	RLKey       bool
	RMPN        uint32 // 0: its own queue
	DBRAddr     uint64
	Buffer      bus.Buffer
}
