package provider

import "github.com/goverbs/goverbs/uapi"

// An SGE is one piece of registered memory, as struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// A SendWR is a work request for the send queue, checked by verbs, flat: which
// fields count depends on Opcode.
type SendWR struct {
	WRID   uint64
	Opcode uapi.IbUverbsWrOpcode
	Flags  uint32 // IB_UVERBS_SEND_*

	// Ex is the immediate in host order, or the key that SEND_WITH_INV and
	// LOCAL_INV invalidate.
	Ex uint32

	RemoteAddr uint64
	RKey       uint32

	CompareAdd uint64 // the compare of CMP_AND_SWP, the summand of FETCH_AND_ADD
	Swap       uint64

	// UD.
	AH         AH
	RemoteQPN  uint32
	RemoteQKey uint32

	// BIND_MW: RKey is the window's new key, MWRKey its key so far.
	BindAddr   uint64
	BindLength uint64
	BindAccess uint32 // IB_UVERBS_ACCESS_*
	BindLKey   uint32
	MWRKey     uint32

	// FLUSH.
	FlushLength uint32
	FlushType   uint8
	FlushLevel  uint8

	// SGL is the data: with IB_UVERBS_SEND_INLINE, Inline instead.
	SGL    []SGE
	Inline []byte
}

// A RecvWR is a work request for a receive queue.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
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
	Ex           uint32 // immediate, in network order, or invalidated key
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
