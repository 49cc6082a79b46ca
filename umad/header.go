package umad

import "encoding/binary"

// Size is the size of a MAD, except for longer messages with RMPP.
const Size = 256

// HeaderSize is the size of the header that all classes share.
const HeaderSize = 24

// A Class is a management class.
type Class uint8

// The management classes.
const (
	ClassSubnet         Class = 0x01 // subnet management, routed by LID
	ClassDirected       Class = 0x81 // subnet management, routed by the path in the MAD
	ClassAdministration Class = 0x03 // the SA
	ClassPerformance    Class = 0x04
	ClassCommunication  Class = 0x07
	ClassDevice         Class = 0x06
	// The classes from ClassVendorFirst to ClassVendorLast have an OUI, which identifies the
	// vendor.
	ClassVendorFirst Class = 0x30
	ClassVendorLast  Class = 0x4f
)

// Subnet reports whether the class is for subnet management, whose MADs go to QP 0.
func (c Class) Subnet() bool { return c == ClassSubnet || c == ClassDirected }

// Vendor reports whether the class is a vendor's, with an OUI.
func (c Class) Vendor() bool { return c >= ClassVendorFirst && c <= ClassVendorLast }

// A Method is the operation that a MAD requests.
type Method uint8

// The methods. The method of an answer has the bit MethodResponse.
const (
	MethodGet      Method = 0x01
	MethodSet      Method = 0x02
	MethodSend     Method = 0x03
	MethodTrap     Method = 0x05
	MethodReport   Method = 0x06
	MethodRepress  Method = 0x07
	MethodResponse Method = 0x80
)

// A Header is the header that all classes share, without the version of the MAD's format, which is
// 1. Subnet management by directed route has its hops in the lower half of the status field.
type Header struct {
	Class    Class  // the MAD's
	Version  uint8  // of the class
	Method   Method // with MethodResponse in an answer
	Status   Status // 0 in a request
	Hops     uint16 // the directed route's: its pointer, and its number of hops
	TID      uint64 // the transaction; the kernel sets the upper half in requests
	Attr     uint16 // the attribute, by its number in the class
	Modifier uint32 // selects a port or a part of a table
}

// Put writes the header to the beginning of a MAD.
func (h *Header) Put(mad []byte) {
	_ = mad[:HeaderSize]
	const baseVersion = 1
	mad[0], mad[1], mad[2], mad[3] = baseVersion, byte(h.Class), h.Version, byte(h.Method)
	binary.BigEndian.PutUint16(mad[4:], uint16(h.Status))
	binary.BigEndian.PutUint16(mad[6:], h.Hops)
	binary.BigEndian.PutUint64(mad[8:], h.TID)
	binary.BigEndian.PutUint16(mad[16:], h.Attr)
	mad[18], mad[19] = 0, 0
	binary.BigEndian.PutUint32(mad[20:], h.Modifier)
}

// ParseHeader reads the header of a MAD.
func ParseHeader(mad []byte) (Header, error) {
	if len(mad) < HeaderSize {
		return Header{}, ErrMalformed
	}
	h := Header{
		Class: Class(mad[1]), Version: mad[2], Method: Method(mad[3]),
		Status: Status(binary.BigEndian.Uint16(mad[4:])), Hops: binary.BigEndian.Uint16(mad[6:]),
		TID: binary.BigEndian.Uint64(mad[8:]), Attr: binary.BigEndian.Uint16(mad[16:]),
		Modifier: binary.BigEndian.Uint32(mad[20:]),
	}
	if h.Class == ClassDirected {
		const returning = 1 << 15
		h.Status &^= returning
	}
	return h, nil
}
