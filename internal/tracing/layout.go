package tracing

import "unsafe"

// The types in this file have the same layout, field by field, as the types of the same names
// in package verbs on 64-bit machines. Slices and pointers are plain numbers here, because
// they refer to the traced program's memory.

// A SendWR has the layout of verbs.SendWR.
type SendWR struct {
	WRID           uint64
	Opcode         uint32
	Flags          uint32
	SGL            Slice // of SGE
	Inline         Slice // of bytes
	Imm            uint32
	InvalidateRKey uint32
	Remote         Remote
	Compare        uint64
	Swap           uint64
	Add            uint64
	CompareMask    uint64
	SwapMask       uint64
	AH             uint64 // see AHHandle
	RemoteQPN      uint32
	RemoteQKey     uint32
	DCKey          uint64
	Header         Slice // of bytes
	MSS            uint16
	DCStream       uint16
	RemoteSRQN     uint32
	MW             uint64 // see MWHandle
	Bind           MWBindInfo
	NewRKey        uint32
	FlushLength    uint32
	FlushType      uint8
	FlushLevel     uint8
	_              [6]byte
}

// Remote has the layout of verbs.Remote.
type Remote struct {
	Addr uint64
	RKey uint32
	_    uint32
}

// MWBindInfo has the layout of verbs.MWBindInfo.
type MWBindInfo struct {
	MR     uint64 // see MRHandle
	Addr   uint64
	Length uint64
	Access uint32
	_      uint32
}

// A RecvWR has the layout of verbs.RecvWR.
type RecvWR struct {
	WRID uint64
	SGL  Slice // of SGE
}

// An SGE has the layout of verbs.SGE and of libibverbs' struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// A WC has the layout of verbs.WC and of libibverbs' struct ibv_wc.
type WC struct {
	WRID         uint64
	Status       uint32
	Opcode       uint32
	VendorErr    uint32
	ByteLen      uint32
	Ex           uint32 // the immediate data, or the rkey that was invalidated
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

// A Slice has the layout of a Go slice.
type Slice struct{ Addr, Len, Cap uint64 }

// Offsets in the objects that a SendWR points to: of the kernel's handle, a uint32, and of the
// byte that is set in an AH without a handle.
const (
	MRHandle = 32
	MWHandle = 40
	AHHandle = 80
	AHLocal  = 160
)

// OpNop is the opcode of a SendWR that does nothing. The other opcodes are the kernel's enum
// ib_uverbs_wr_opcode.
const OpNop = 16

// DCI and SRD are QP types for which the kernel has no numbers. The other types are the
// kernel's enum ib_uverbs_qp_type.
const (
	DCI = 0x1d
	SRD = 0x1f
)

// Bytes returns the memory of a SendWR or a RecvWR, into which a program's can be read. The
// types have no pointers, and every bit pattern is valid.
func Bytes[T SendWR | RecvWR](wr *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(wr)), unsafe.Sizeof(*wr))
}
