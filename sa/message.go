package sa

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/umad"
)

// A Method is the operation that a request asks of the SA.
type Method = umad.Method

// The methods of requests.
const (
	MethodGet      Method = umad.MethodGet // one record
	MethodSet      Method = umad.MethodSet // make a record, or change it
	MethodGetTable Method = 0x12           // all matching records
	MethodDelete   Method = 0x15
)

func methodName(m Method) string {
	switch m {
	case MethodGet:
		return "get"
	case MethodSet:
		return "set"
	case MethodGetTable:
		return "get table of"
	case MethodDelete:
		return "delete"
	}
	return fmt.Sprintf("method %#02x on", uint8(m))
}

// An Attribute is a kind of record (section 15.2.5).
type Attribute uint16

// The attributes.
const (
	AttrClassPortInfo    Attribute = 0x01
	AttrNodeRecord       Attribute = 0x11
	AttrPortInfoRecord   Attribute = 0x12
	AttrSL2VLTable       Attribute = 0x13
	AttrSwitchInfoRecord Attribute = 0x14
	AttrLinearTable      Attribute = 0x15
	AttrMulticastTable   Attribute = 0x17
	AttrSMInfoRecord     Attribute = 0x18
	AttrLinkRecord       Attribute = 0x20
	AttrGUIDInfoRecord   Attribute = 0x30
	AttrServiceRecord    Attribute = 0x31
	AttrPKeyTable        Attribute = 0x33
	AttrPathRecord       Attribute = 0x35
	AttrVLArbitration    Attribute = 0x36
	AttrMCMemberRecord   Attribute = 0x38
	AttrInformInfoRecord Attribute = 0xf3
)

var attributeNames = map[Attribute]string{
	AttrClassPortInfo: "ClassPortInfo", AttrNodeRecord: "NodeRecord", AttrPortInfoRecord: "PortInfoRecord",
	AttrPathRecord: "PathRecord", AttrMCMemberRecord: "MCMemberRecord", AttrLinkRecord: "LinkRecord", AttrSMInfoRecord: "SMInfoRecord",
}

// String returns the specification's name of an attribute that is often queried, or the number of another.
func (a Attribute) String() string {
	if name := attributeNames[a]; name != "" {
		return name
	}
	return fmt.Sprintf("attribute %#04x", uint16(a))
}

// A Mask selects the components of a record that a request gives: bit 0 is the first
// component. It is the ComponentMask of section 15.2.1.1.
type Mask uint64

// MaxRecord is the maximum length of the record in a request, in bytes.
const MaxRecord = umad.Size - dataOffset

// A Request is a request for any kind of record, even a kind that this package has no type
// for.
type Request struct {
	Method   Method    // one of the four above
	Attr     Attribute // the kind of record
	Modifier uint32    // the AttributeModifier, 0 for most
	Mask     Mask      // the components that Record gives
	Record   []byte    // in wire format, up to MaxRecord bytes
}

// The offsets of the SA's header, which follows the header that all classes share.
const (
	rmppVersion  = 24
	rmppFlags    = 26
	keyOffset    = 36
	recordOffset = 44 // the AttributeOffset
	maskOffset   = 48
	dataOffset   = 56

	rmppActive = 1 << 0 // a bit of the flags
	version    = 2      // of the class
)

// encode returns the request's MAD.
func (r *Request) encode(key uint64) ([]byte, error) {
	switch r.Method {
	case MethodGet, MethodSet, MethodGetTable, MethodDelete:
	default:
		return nil, operr.Invalid("method %#02x: not one of get, set, get table and delete", uint8(r.Method))
	}
	if len(r.Record) > MaxRecord {
		return nil, operr.Invalid("a record of %d bytes: more than %d", len(r.Record), MaxRecord)
	}
	mad := make([]byte, umad.Size)
	h := umad.Header{Class: umad.ClassAdministration, Version: version, Method: r.Method, Attr: uint16(r.Attr), Modifier: r.Modifier}
	h.Put(mad)
	binary.BigEndian.PutUint64(mad[keyOffset:], key)
	binary.BigEndian.PutUint64(mad[maskOffset:], uint64(r.Mask))
	copy(mad[dataOffset:], r.Record)
	return mad, nil
}

// decode returns the records in the answer to the request, each of which has at least size bytes.
func (r *Request) decode(mad []byte, size int) ([][]byte, error) {
	h, err := umad.ParseHeader(mad)
	if err != nil || len(mad) < dataOffset {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(mad))
	}
	method := r.Method | umad.MethodResponse
	if r.Method == MethodSet {
		method = MethodGet | umad.MethodResponse
	}
	if h.Class != umad.ClassAdministration || h.Version != version || h.Method != method || h.Attr != uint16(r.Attr) {
		return nil, fmt.Errorf("%w: class %#02x version %d, method %#02x, attribute %#04x", ErrMalformed, uint8(h.Class), h.Version, uint8(h.Method), h.Attr)
	}
	data := mad[dataOffset:]
	if r.Method != MethodGetTable {
		if len(data) < size {
			return nil, fmt.Errorf("%w: a record of %d bytes, not %d", ErrMalformed, len(data), size)
		}
		return [][]byte{data}, nil
	}
	// Only RMPP gives the length of a table. Any other MAD always has its full size.
	if mad[rmppVersion] != 1 || mad[rmppFlags]&rmppActive == 0 {
		return nil, fmt.Errorf("%w: a table without RMPP", ErrMalformed)
	}
	if len(data) == 0 {
		return nil, nil
	}
	const unit = 8
	step := unit * int(binary.BigEndian.Uint16(mad[recordOffset:]))
	if step == 0 || step < size {
		return nil, fmt.Errorf("%w: records of %d bytes, not %d", ErrMalformed, step, size)
	}
	var records [][]byte
	for len(data) >= step {
		records, data = append(records, data[:step:step]), data[step:]
	}
	// The last record may lack the padding that separates records.
	switch {
	case len(data) == 0:
	case size > 0 && len(data) >= size:
		records = append(records, data)
	default:
		return nil, fmt.Errorf("%w: %d bytes are left after %d records of %d", ErrMalformed, len(data), len(records), step)
	}
	return records, nil
}
