package eq

import "encoding/binary"

// Types of events, MLX5_EVENT_TYPE_*.
const (
	TypeCompletion    = 0x00
	TypePathMigrated  = 0x01
	TypeCommEst       = 0x02
	TypeSQDrained     = 0x03
	TypeCQError       = 0x04
	TypeQPFatal       = 0x05 // WQ_CATAS_ERROR
	TypeInternalError = 0x08
	TypePortChange    = 0x09
	TypeCommand       = 0x0a
	TypePageRequest   = 0x0b
	TypePageFault     = 0x0c
	TypeQPRequest     = 0x10 // WQ_INVAL_REQ_ERROR
	TypeQPAccess      = 0x11 // WQ_ACCESS_ERROR
	TypeSRQError      = 0x12 // SRQ_CATAS_ERROR
	TypeLastWQE       = 0x13 // SRQ_LAST_WQE
	TypeSRQLimit      = 0x14 // SRQ_RQ_LIMIT
	TypeDCTDrained    = 0x1c
	TypeDCTKey        = 0x1d // DCT_KEY_VIOLATION
	TypeGeneral       = 0x22
)

// Subtypes of a port change, MLX5_PORT_CHANGE_SUBTYPE_*.
const (
	PortDown        = 1
	PortActive      = 4
	PortInitialized = 5
	PortLID         = 6
	PortPKey        = 7
	PortGUID        = 8
	PortReregister  = 9
)

// Resource is the kind of resource of a QP or SRQ event, MLX5_EVENT_QUEUE_TYPE_*.
type Resource uint8

const (
	ResourceQP  Resource = 0
	ResourceRQ  Resource = 1
	ResourceSQ  Resource = 2
	ResourceDCT Resource = 6
)

// Event is an entry of an event queue: its type, and 28 bytes with the details.
type Event struct {
	Type, Subtype uint8
	Data          [28]byte
}

// Completion returns the event for new entries in an armed CQ.
func Completion(cqn uint32) Event {
	e := Event{Type: TypeCompletion}
	binary.BigEndian.PutUint32(e.Data[24:], cqn)
	return e
}

// QP returns an event of a QP or of one of its queues: TypeCommEst, TypeSQDrained,
// TypeQPFatal, TypeQPRequest, TypeQPAccess, TypeLastWQE, TypePathMigrated.
func QP(typ uint8, r Resource, qpn uint32) Event {
	e := Event{Type: typ}
	e.Data[20] = byte(r)
	binary.BigEndian.PutUint32(e.Data[24:], qpn)
	return e
}

// SRQ returns an event of an SRQ, an XRC SRQ or an RMP: TypeSRQLimit or TypeSRQError.
func SRQ(typ uint8, srqn uint32) Event {
	e := Event{Type: typ}
	binary.BigEndian.PutUint32(e.Data[24:], srqn)
	return e
}

// DCT returns an event of a DCT: TypeDCTDrained or TypeDCTKey.
func DCT(typ uint8, dctn uint32) Event {
	e := Event{Type: typ}
	binary.BigEndian.PutUint32(e.Data[24:], dctn)
	return e
}

// CQError returns the event for a CQ that went to error. The syndrome is 1 for an
// overrun, 2 for memory that the HCA can't write.
func CQError(cqn uint32, syndrome uint8) Event {
	e := Event{Type: TypeCQError}
	binary.BigEndian.PutUint32(e.Data[0:], cqn)
	e.Data[11] = syndrome
	return e
}

// Port returns the event for a change of a port, 1 or 2, whose number is in the upper half
// of a byte.
func Port(subtype, port uint8) Event {
	e := Event{Type: TypePortChange, Subtype: subtype}
	e.Data[8] = port << 4
	return e
}

// Command returns the event for completed commands: those whose bits are set in vector.
func Command(vector uint32) Event {
	e := Event{Type: TypeCommand}
	binary.BigEndian.PutUint32(e.Data[0:], vector)
	return e
}

// PageRequest returns the event that requests pages or, if pages is negative, returns them.
func PageRequest(function uint16, pages int32) Event {
	e := Event{Type: TypePageRequest}
	binary.BigEndian.PutUint16(e.Data[2:], function)
	binary.BigEndian.PutUint32(e.Data[4:], uint32(pages))
	return e
}

// Subtypes of a page fault, MLX5_PFAULT_SUBTYPE_*.
const (
	PageFaultWQE  = 0
	PageFaultRDMA = 1
)

// PageFaultAt returns the event for a page fault on a WQE's memory, of kind
// MLX5_WQE_PF_TYPE_*, in queue wq. The driver returns the token when it has resolved it.
func PageFaultAt(kind uint8, wq uint32, index uint16, token uint32) Event {
	e := Event{Type: TypePageFault, Subtype: PageFaultWQE}
	binary.BigEndian.PutUint16(e.Data[6:], index)
	binary.BigEndian.PutUint32(e.Data[12:], token)
	binary.BigEndian.PutUint32(e.Data[24:], uint32(kind)<<24|wq)
	return e
}

// PageFaultIn returns the event for a page fault on memory that the peer accesses: n bytes
// at va, in an operation on length bytes. The token has 24 bits.
func PageFaultIn(kind uint8, rkey uint32, va uint64, n uint16, length, token uint32) Event {
	e := Event{Type: TypePageFault, Subtype: PageFaultRDMA}
	binary.BigEndian.PutUint32(e.Data[4:], rkey)
	binary.BigEndian.PutUint16(e.Data[10:], n)
	binary.BigEndian.PutUint32(e.Data[12:], length)
	binary.BigEndian.PutUint64(e.Data[16:], va)
	binary.BigEndian.PutUint32(e.Data[24:], uint32(kind)<<24|token)
	return e
}

// General returns an event of the device, MLX5_GENERAL_SUBTYPE_*.
func General(subtype uint8) Event { return Event{Type: TypeGeneral, Subtype: subtype} }

// InternalError returns the event for a fatal error of the device.
func InternalError() Event { return Event{Type: TypeInternalError} }
