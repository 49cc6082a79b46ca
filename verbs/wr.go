package verbs

import (
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An SGE is a scatter/gather entry: a piece of registered memory. MR.SGE makes
// one.
type SGE struct {
	Addr   uint64
	Length uint32 // bytes
	LKey   uint32
}

// An Opcode is what a send work request does, as enum ibv_wr_opcode.
type Opcode uint32

const (
	OpSend         = Opcode(uapi.IB_UVERBS_WR_SEND)
	OpSendImm      = Opcode(uapi.IB_UVERBS_WR_SEND_WITH_IMM)
	OpSendInv      = Opcode(uapi.IB_UVERBS_WR_SEND_WITH_INV)
	OpRDMAWrite    = Opcode(uapi.IB_UVERBS_WR_RDMA_WRITE)
	OpRDMAWriteImm = Opcode(uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM)
	OpRDMARead     = Opcode(uapi.IB_UVERBS_WR_RDMA_READ)
	OpCompareSwap  = Opcode(uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP)
	OpFetchAdd     = Opcode(uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD)
	OpLocalInv     = Opcode(uapi.IB_UVERBS_WR_LOCAL_INV)
	OpBindMW       = Opcode(uapi.IB_UVERBS_WR_BIND_MW)
	OpFlush        = Opcode(uapi.IB_UVERBS_WR_FLUSH)
	OpAtomicWrite  = Opcode(uapi.IB_UVERBS_WR_ATOMIC_WRITE)

	// What only some adapters have, mlx5 among them.
	OpTSO               = Opcode(uapi.IB_UVERBS_WR_TSO) // a raw packet to be cut into segments
	OpMaskedCompareSwap = Opcode(uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP)
	OpMaskedFetchAdd    = Opcode(uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD)
	OpNop               = Opcode(provider.WRNop) // does nothing, and completes as WCSend
)

func (o Opcode) String() string {
	if o == OpNop {
		return "NOP"
	}
	return uapi.EnumIbUverbsWrOpcode.Short(uint64(o))
}

// SendFlags modify a send work request, as enum ibv_send_flags. Inline data
// has no flag: it is what SendWR.Inline holds.
type SendFlags uint32

const (
	SendFence     = SendFlags(uapi.IB_SEND_FENCE)     // wait for earlier RDMA reads and atomics
	SendSignaled  = SendFlags(uapi.IB_SEND_SIGNALED)  // complete on the CQ even if all goes well
	SendSolicited = SendFlags(uapi.IB_SEND_SOLICITED) // wake a peer that armed for solicited events

	// SendIPChecksum has the device compute the IPv4, and the TCP or UDP checksum
	// of a raw packet.
	SendIPChecksum = SendFlags(uapi.IB_SEND_IP_CSUM)

	// sendKnown are the flags for all types of QP.
	sendKnown = SendFence | SendSignaled | SendSolicited
)

func (f SendFlags) String() string { return uapi.EnumIbSendFlags.Short(uint64(f)) }

// A SendWR is a work request for the send queue, as struct ibv_send_wr.
// PostSend copies it: it may be reused at once, but the memory that SGL names
// only after the completion.
type SendWR struct {
	WRID   uint64 // comes back in the completion
	Opcode Opcode
	Flags  SendFlags

	// SGL is the data: gathered for sends and writes, scattered to for reads
	// and atomics (8 bytes).
	SGL []SGE
	// Inline is data that is copied when posted, in place of SGL: for sends and
	// writes, up to QPCap.MaxInlineData. OpAtomicWrite takes its 8 bytes so.
	Inline []byte

	Imm            uint32 // OpSendImm, OpRDMAWriteImm; host order
	InvalidateRKey uint32 // OpSendInv: the peer's key; OpLocalInv: one's own

	// RDMA, atomics and flush.
	RemoteAddr uint64 // of atomics and OpAtomicWrite: a multiple of 8
	RKey       uint32

	// XRCSend: SRQ.Num of the SRQ that takes the message. Writes, reads and atomics
	// must name one, too: it is in its PD that the peer looks RKey up.
	RemoteSRQN uint32

	Compare uint64 // OpCompareSwap, OpMaskedCompareSwap
	Swap    uint64 // OpCompareSwap, OpMaskedCompareSwap
	Add     uint64 // OpFetchAdd, OpMaskedFetchAdd

	// CompareMask has the bits that OpMaskedCompareSwap compares; for
	// OpMaskedFetchAdd the highest bit of each field that is added for itself.
	CompareMask uint64
	SwapMask    uint64 // the bits that OpMaskedCompareSwap exchanges

	// UD and DCI; for the latter RemoteQPN is the DCT's number, and DCKey its
	// access key.
	AH         *AH
	RemoteQPN  uint32
	RemoteQKey uint32
	DCKey      uint64

	// OpTSO: the header that each segment gets, and how much of the data each has
	// at most.
	Header []byte
	MSS    uint16

	// OpBindMW, for type 2 windows. Once it has completed, the window's key is
	// NewRKey, which differs from MW.RKey in the lowest byte only.
	MW      *MW
	Bind    MWBindInfo
	NewRKey uint32

	// OpFlush: FlushLength bytes from RemoteAddr, or all of the MR.
	FlushLength uint32
	FlushType   FlushType
	FlushLevel  FlushLevel
}

// MWBindInfo is what a memory window opens, as struct ibv_mw_bind_info.
// Length 0 closes it.
type MWBindInfo struct {
	MR     *MR // registered with AccessMWBind
	Addr   uint64
	Length uint64
	Access AccessFlags
}

// A FlushType says how far OpFlush makes earlier writes visible; combine them.
type FlushType uint8

const (
	FlushGlobal     = FlushType(uapi.IB_FLUSH_GLOBAL)
	FlushPersistent = FlushType(uapi.IB_FLUSH_PERSISTENT)
)

// A FlushLevel says what OpFlush flushes.
type FlushLevel uint8

const (
	FlushRange = FlushLevel(uapi.IB_FLUSH_RANGE)
	FlushMR    = FlushLevel(uapi.IB_FLUSH_MR)
)

// A RecvWR is a work request for a receive queue, as struct ibv_recv_wr.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}
