package tracing

import "unsafe"

// The types of this file have the layout that those of package verbs with the same names
// have on 64-bit machines, field by field. Slices and pointers are plain numbers here:
// they lead into the program's memory, not into the tracer's.

// A SendWR is verbs.SendWR.
type SendWR struct {
	WRID           uint64
	Opcode         uint32
	Flags          uint32
	SGL            Slice // of SGE
	Inline         Slice // of bytes
	Imm            uint32
	InvalidateRKey uint32
	RemoteAddr     uint64
	RKey           uint32
	RemoteSRQN     uint32
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
	_              [6]byte
	MW             uint64 // see MWHandle
	Bind           MWBindInfo
	NewRKey        uint32
	FlushLength    uint32
	FlushType      uint8
	FlushLevel     uint8
	_              [6]byte
}

// MWBindInfo is verbs.MWBindInfo.
type MWBindInfo struct {
	MR     uint64 // see MRHandle
	Addr   uint64
	Length uint64
	Access uint32
	_      uint32
}

// A RecvWR is verbs.RecvWR.
type RecvWR struct {
	WRID uint64
	SGL  Slice // of SGE
}

// An SGE is verbs.SGE, which is laid out as libibverbs' struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// A WC is verbs.WC, which is laid out as libibverbs' struct ibv_wc.
type WC struct {
	WRID         uint64
	Status       uint32
	Opcode       uint32
	VendorErr    uint32
	ByteLen      uint32
	Ex           uint32 // the immediate data or the key that was invalidated
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

// A Slice is how Go lays out a slice.
type Slice struct{ Addr, Len, Cap uint64 }

// Where the kernel's handle, a uint32, is in what a SendWR points to, and where a byte of
// an AH says that it has none.
const (
	MRHandle = 32
	MWHandle = 32
	AHHandle = 80
	AHLocal  = 120
)

// OpNop is the opcode of a SendWR that does nothing; the others are the kernel's, enum
// ib_uverbs_wr_opcode.
const OpNop = 16

// DCI is the type of a QP, for which the kernel has no number of its own; the others are
// the kernel's, enum ib_uverbs_qp_type.
const DCI = 0x1d

// Bytes returns the memory of a SendWR or a RecvWR, to be filled with what a program has.
// Neither has pointers or values that are not valid, so any bytes will do.
func Bytes[T SendWR | RecvWR](wr *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(wr)), unsafe.Sizeof(*wr))
}
