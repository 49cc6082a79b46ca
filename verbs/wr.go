package verbs

import (
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An SGE is a scatter/gather entry: a piece of registered memory. MR.SGE returns one.
type SGE struct {
	Addr   uint64 // of the first byte, as the MR has it
	Length uint32 // bytes
	LKey   uint32 // of the MR
}

// An Opcode is the operation of a send work request (enum ibv_wr_opcode).
type Opcode uint32

const (
	OpSend         Opcode = Opcode(uapi.IB_UVERBS_WR_SEND)                 // send a message
	OpSendImm      Opcode = Opcode(uapi.IB_UVERBS_WR_SEND_WITH_IMM)        // send a message with 32 bits of immediate data
	OpSendInv      Opcode = Opcode(uapi.IB_UVERBS_WR_SEND_WITH_INV)        // send a message, and invalidate a key of the peer
	OpRDMAWrite    Opcode = Opcode(uapi.IB_UVERBS_WR_RDMA_WRITE)           // write to the peer's memory
	OpRDMAWriteImm Opcode = Opcode(uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM)  // write to the peer's memory, and consume a receive with immediate data
	OpRDMARead     Opcode = Opcode(uapi.IB_UVERBS_WR_RDMA_READ)            // read the peer's memory
	OpCompareSwap  Opcode = Opcode(uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP)   // replace a number in the peer's memory if it has a value
	OpFetchAdd     Opcode = Opcode(uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD) // add to a number in the peer's memory
	OpLocalInv     Opcode = Opcode(uapi.IB_UVERBS_WR_LOCAL_INV)            // invalidate a key of this side
	OpBindMW       Opcode = Opcode(uapi.IB_UVERBS_WR_BIND_MW)              // bind a window of type 2
	OpFlush        Opcode = Opcode(uapi.IB_UVERBS_WR_FLUSH)                // make earlier writes visible at the peer
	OpAtomicWrite  Opcode = Opcode(uapi.IB_UVERBS_WR_ATOMIC_WRITE)         // write 8 bytes to the peer's memory atomically

	// Only some adapters, such as mlx5, support the following operations.
	OpTSO               Opcode = Opcode(uapi.IB_UVERBS_WR_TSO)                         // a raw packet to be cut into segments
	OpMaskedCompareSwap Opcode = Opcode(uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP)   // OpCompareSwap of some bits
	OpMaskedFetchAdd    Opcode = Opcode(uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD) // OpFetchAdd of several fields
	OpNop               Opcode = Opcode(provider.WRNop)                                // does nothing, and completes as WCSend
)

func (o Opcode) String() string {
	if o == OpNop {
		return "NOP"
	}
	return uapi.EnumIbUverbsWrOpcode.Short(uint64(o))
}

// SendFlags modify a send work request (enum ibv_send_flags). There is no flag for
// inline data: set SendWR.Inline.
type SendFlags uint32

const (
	SendFence     SendFlags = SendFlags(uapi.IB_SEND_FENCE)     // wait for earlier RDMA reads and atomics
	SendSignaled  SendFlags = SendFlags(uapi.IB_SEND_SIGNALED)  // generate a completion also on success
	SendSolicited SendFlags = SendFlags(uapi.IB_SEND_SOLICITED) // wake a peer that has armed its CQ for solicited events

	// SendIPChecksum makes the device compute the IPv4 checksum and the TCP or UDP
	// checksum of a raw packet.
	SendIPChecksum SendFlags = SendFlags(uapi.IB_SEND_IP_CSUM)

	// sendKnown are the flags for all types of QP.
	sendKnown = SendFence | SendSignaled | SendSolicited
)

func (f SendFlags) String() string { return uapi.EnumIbSendFlags.Short(uint64(f)) }

// A SendWR is a work request for the send queue (struct ibv_send_wr). PostSend copies it,
// so it may be reused at once. The memory that SGL names may be reused only after the
// completion, even if the wait for it was cancelled: see CQ.PollWait.
//
// Atomics work on a uint64 in the peer's memory, in the byte order of the peer's processor.
// Compare, Swap, Add and the masks are ordinary numbers. The result, the value before the
// operation, is written to SGL in the byte order of this processor. So neither side swaps
// bytes. OpAtomicWrite writes its 8 bytes unchanged, as OpRDMAWrite does.
type SendWR struct {
	WRID   uint64    // returned in the completion
	Opcode Opcode    // the operation; required for a request with data
	Flags  SendFlags // zero or more flags

	// SGL is the memory of the data: the source of sends and writes, the destination of
	// reads and atomics (8 bytes).
	SGL []SGE
	// Inline is data to copy into the request, in place of SGL, up to QPCap.MaxInlineData
	// bytes. It is for sends and writes. OpAtomicWrite takes its 8 bytes from Inline.
	Inline []byte

	Imm            uint32 // OpSendImm, OpRDMAWriteImm; host byte order
	InvalidateRKey uint32 // OpSendInv: a key of the peer; OpLocalInv: a local key

	// Remote is the peer's memory, for RDMA, atomics and flush. For atomics and
	// OpAtomicWrite its address is a multiple of 8.
	Remote Remote

	Compare uint64 // OpCompareSwap, OpMaskedCompareSwap: the value to replace
	Swap    uint64 // OpCompareSwap, OpMaskedCompareSwap: the new value
	Add     uint64 // OpFetchAdd, OpMaskedFetchAdd

	// CompareMask has the bits that OpMaskedCompareSwap compares. For OpMaskedFetchAdd it
	// has the highest bit of each field: each field is added separately.
	CompareMask uint64
	SwapMask    uint64 // the bits that OpMaskedCompareSwap exchanges

	// AH, RemoteQPN and so on are for UD, SRD and DCI. For a DCI, RemoteQPN is the DCT's
	// number, and DCKey its access key.
	AH         *AH
	RemoteQPN  uint32 // the number of the receiving QP
	RemoteQKey uint32 // UD: the Q_Key that the receiving QP expects
	DCKey      uint64 // the DCT's QPOptions.DCKey

	// Header and MSS are for OpTSO: the header of each segment, and the maximum size of its data.
	Header []byte
	MSS    uint16 // in bytes

	// DCStream is for a DCI with streams: the request's stream, any number. See
	// mlx5dv.QPOptions.Streams.
	DCStream uint16

	// RemoteSRQN is for XRCSend: SRQ.Num of the peer's SRQ that receives the message. Writes, reads
	// and atomics need it, too: the peer looks up the key of Remote in that SRQ's PD.
	RemoteSRQN uint32

	// MW, Bind and NewRKey are for OpBindMW, which binds type 2 windows. NewRKey is the
	// window's key once the request has completed. It may differ from MW.RKey in the lowest
	// byte only.
	MW      *MW
	Bind    MWBindInfo // the memory
	NewRKey uint32     // the window's next key

	// FlushLength is for OpFlush of a FlushRange: the number of bytes from Remote on.
	FlushLength uint32
	FlushType   FlushType  // how far
	FlushLevel  FlushLevel // the memory to flush
}

// MWBindInfo is the memory that a window gives access to (struct ibv_mw_bind_info).
// Length 0 closes the window.
type MWBindInfo struct {
	MR     *MR         // registered with AccessMWBind
	Addr   uint64      // of the first byte, as the MR has it
	Length uint64      // in bytes
	Access AccessFlags // what a peer may do
}

// A FlushType is the scope in which OpFlush makes earlier writes visible. Types can be combined.
type FlushType uint8

const (
	FlushGlobal     FlushType = FlushType(uapi.IB_FLUSH_GLOBAL)     // to every processor and device
	FlushPersistent FlushType = FlushType(uapi.IB_FLUSH_PERSISTENT) // to memory that keeps its contents
)

func (f FlushType) String() string { return uapi.EnumIbPlacementType.Short(uint64(f)) }

// A FlushLevel selects the memory that OpFlush flushes.
type FlushLevel uint8

const (
	FlushRange FlushLevel = FlushLevel(uapi.IB_FLUSH_RANGE) // FlushLength bytes
	FlushMR    FlushLevel = FlushLevel(uapi.IB_FLUSH_MR)    // all of the MR
)

func (f FlushLevel) String() string { return uapi.EnumIbSelectivityLevel.Short(uint64(f)) }

// A RecvWR is a work request for a receive queue (struct ibv_recv_wr). SGL may be empty: a
// message without data, and an OpRDMAWriteImm, need a receive without memory.
type RecvWR struct {
	WRID uint64 // returned in the completion
	SGL  []SGE  // the memory for the message, in this order
}
