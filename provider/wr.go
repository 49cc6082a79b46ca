package provider

import (
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uapi"
)

// An SGE is a piece of registered memory (struct ibv_sge).
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// A SendWR is a work request for the send queue. It is a checked SendWR of package verbs,
// with the same fields at the same offsets. Opcode determines which of them are used.
type SendWR struct {
	WRID   uint64
	Opcode uapi.IbUverbsWrOpcode
	Flags  uint32 // IB_UVERBS_SEND_*, without INLINE: see Inline

	// The data is Inline unless Inline is nil, else SGL.
	SGL    []SGE
	Inline []byte

	Imm            uint32 // in host byte order
	InvalidateRKey uint32 // the key that SEND_WITH_INV and LOCAL_INV invalidate

	Remote Remote

	Compare, Swap, Add    uint64
	CompareMask, SwapMask uint64

	// For UD, DC and SRD.
	AH         *AHRef
	RemoteQPN  uint32
	RemoteQKey uint32
	DCKey      uint64

	// For TSO.
	Header []byte
	MSS    uint16

	DCStream uint16

	RemoteSRQN uint32 // XRC

	// For BIND_MW. NewRKey is the window's next key.
	MW      *MWRef
	Bind    MWBind
	NewRKey uint32

	// For FLUSH.
	FlushLength uint32
	FlushType   uint8
	FlushLevel  uint8
}

// Nowhere reports whether a request writes data to address 0 with key 0: a request without an operation. A write of
// no data is legal there: it shows whether the peer answers.
func (wr *SendWR) Nowhere() bool {
	return wr.Remote.Addr == 0 && wr.Opcode == 0 && wr.Remote.RKey == 0 && len(wr.SGL)+len(wr.Inline) > 0
}

// A Remote locates memory of a peer: an address, and the key of the memory region or window.
type Remote struct {
	Addr uint64
	RKey uint32
}

// A Short is a short form of a SendWR, for a connected QP. It is a send with or without
// immediate, an RDMA write or an RDMA read, whose data is one piece of memory. Package
// verbs has only checked that the QP's type supports the operation.
//
// It has few words, because the number of stores before the doorbell determines the cost of a post.
type Short struct {
	WRID       uint64
	Operation  uint64 // Opcode in the lower half, Flags in the upper
	RemoteAddr uint64
	Key        uint64 // Imm, or 0, in the lower half, RKey in the upper
	Addr       uint64
	Data       uint64 // LKey in the lower half, Length in the upper
}

// WRNop is the opcode of a request that does nothing. uverbs has no opcode for it.
const WRNop uapi.IbUverbsWrOpcode = 16

// MWBind is the memory to which a window is bound.
type MWBind struct {
	MR     *MRRef // nil if Length is 0
	Addr   uint64
	Length uint64
	Access uint32 // IB_UVERBS_ACCESS_*
}

// An AHRef is the part of an address handle that goes into work requests. The provider
// fills in the field that its device needs.
type AHRef struct {
	Number uint32    // for rxe and efa: the kernel's or the device's number
	Vector [6]uint64 // for mlx5: the address vector without key and destination QP
}

// An MRRef is the part of a memory region that goes into work requests.
type MRRef struct {
	LKey uint32
}

// An MWRef is the part of a memory window that goes into work requests.
type MWRef struct {
	RKey atomic.Uint32 // the current key
	Type uint8         // 1 or 2
	Addr atomic.Uint64 // where the window begins
}

// Rebind gives the window a new key and address, and returns the key that it had. The
// provider calls it when it encodes a BIND_MW.
func (m *MWRef) Rebind(wr *SendWR) (before uint32) {
	m.Addr.Store(wr.Bind.Addr)
	return m.RKey.Swap(wr.NewRKey)
}

// A RecvWR is a work request for a receive queue.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}

// MaxMessage is the maximum length of a message, and of a receive, in bytes. InfiniBand's
// maximum is one byte longer, a length that mlx5 can't encode.
const MaxMessage = 1<<31 - 1

// TooLong reports whether a receive has more than MaxMessage bytes in total.
func TooLong(sgl []SGE) bool {
	var length uint64
	for i := range sgl {
		length += uint64(sgl[i].Length)
	}
	return length > MaxMessage
}

// A WC is a work completion. It has the layout of struct ib_uverbs_wc
// (ib_user_verbs.h), which software drivers use in their queues.
type WC struct {
	WRID         uint64
	Status       uint32 // IB_WC_*
	Opcode       uint32 // IB_WC_*
	VendorErr    uint32
	ByteLen      uint32
	Ex           uint32 // immediate in network byte order, or invalidated key; for a failed request, hw_synd_type and hw_err_synd (mlx5)
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

// Fields selects the fields of a WCEx that a CQ reports beside those of a WC.
type Fields uint32

const (
	FieldTimestamp Fields = 1 << iota
	FieldWallClock
	FieldFlowTag
	FieldVLAN
	FieldSGID
	FieldUnsolicited
	FieldTag
)

// A WCEx is a work completion with the selected fields.
type WCEx struct {
	WC
	Timestamp uint64    // cycles of the clock that Context.Clock reads
	WallClock time.Time // the same time on the system's clock
	FlowTag   uint32    // the tag of the rule that steered a packet to the QP
	VLAN      uint16    // the tag removed from a received packet: PCP, DEI and VLAN ID

	Unsolicited bool     // the completion of an RDMA write with immediate data that consumed no receive
	SGID        [16]byte // the GID of a sender without an address handle

	Tag        uint64 // the tag of a message that matched, and the sender's word beside it
	TagContext uint32
}
