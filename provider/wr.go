package provider

import (
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/uapi"
)

// An SGE is one piece of registered memory, as struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// A SendWR is a work request for the send queue. It is package verbs' SendWR,
// checked, with the same fields at the same places: which ones count depends
// on Opcode.
type SendWR struct {
	WRID   uint64
	Opcode uapi.IbUverbsWrOpcode
	Flags  uint32 // IB_UVERBS_SEND_*, without INLINE: that is what Inline says

	// SGL is the data, or Inline if it isn't nil.
	SGL    []SGE
	Inline []byte

	Imm            uint32 // in host order
	InvalidateRKey uint32 // the key that SEND_WITH_INV and LOCAL_INV invalidate

	RemoteAddr uint64
	RKey       uint32
	RemoteSRQN uint32 // XRC

	Compare, Swap, Add    uint64
	CompareMask, SwapMask uint64

	// UD and DC.
	AH         *AHRef
	RemoteQPN  uint32
	RemoteQKey uint32
	DCKey      uint64

	// TSO.
	Header []byte
	MSS    uint16

	// BIND_MW: NewRKey is the window's next key.
	MW      *MWRef
	Bind    MWBind
	NewRKey uint32

	// FLUSH.
	FlushLength uint32
	FlushType   uint8
	FlushLevel  uint8
}

// A Short is a SendWR of a connected QP for a send, with or without immediate, or
// for an RDMA write or read, whose data is one piece of memory. Package verbs has
// checked no more than that the type of QP has the operation.
//
// It has few words, since a post's cost is the number of stores before the
// doorbell.
type Short struct {
	WRID       uint64
	Operation  uint64 // Opcode, and Flags above
	RemoteAddr uint64
	Key        uint64 // Imm, which is 0 if the operation has none, and RKey above
	Addr       uint64
	Data       uint64 // LKey, and Length above
}

// WRNop is the opcode of a request that does nothing, for which uverbs has none.
const WRNop uapi.IbUverbsWrOpcode = 16

// MWBind is what a window is bound to.
type MWBind struct {
	MR     *MRRef // nil if Length is 0
	Addr   uint64
	Length uint64
	Access uint32 // IB_UVERBS_ACCESS_*
}

// An AHRef is what work requests say of an address handle. The provider fills
// it in; which field depends on what its device wants.
type AHRef struct {
	Number uint32    // the kernel's, rxe
	Vector [6]uint64 // mlx5's address vector, but for key and destination QP
}

// An MRRef is what work requests say of a memory region.
type MRRef struct {
	LKey uint32
}

// An MWRef is what work requests say of a memory window. The provider sets
// RKey to NewRKey when it has encoded a BIND_MW.
type MWRef struct {
	RKey atomic.Uint32 // so far
	Type uint8         // 1 or 2
}

// A RecvWR is a work request for a receive queue.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}

// TooLong tells that the pieces of a receive have 4 GiB or more.
func TooLong(sgl []SGE) bool {
	var length uint64
	for i := range sgl {
		length += uint64(sgl[i].Length)
	}
	return length > math.MaxUint32
}

// A WC is a work completion, laid out as struct ib_uverbs_wc
// (ib_user_verbs.h), with which drivers that complete in software fill their
// queues.
type WC struct {
	WRID         uint64
	Status       uint32 // IB_WC_*
	Opcode       uint32 // IB_WC_*
	VendorErr    uint32
	ByteLen      uint32
	Ex           uint32 // immediate, in network order, or invalidated key; of a failed request, hw_synd_type and hw_err_synd (mlx5)
	QPNum        uint32
	SrcQP        uint32
	Flags        uint32
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	PortNum      uint8
	_            uint8
}
