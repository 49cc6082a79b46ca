package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The wire of rsocket, version 1. Each message is an RDMA write with immediate data. The
// immediate has the message's type in its three highest bits and a value below them.
const (
	version     = 1
	connDataLen = 40
	sgeLen      = 16

	// flagNet says that the sender is big-endian, flagIOMap that its list of targets is
	// followed by one of mapped memory.
	flagNet   = 1 << 0
	flagIOMap = 1 << 1
)

// A msgType is the type of a message.
type msgType uint32

const (
	msgData    msgType = 0 // the value is the number of bytes written into the ring
	msgCredits msgType = 4 // the value is the sequence number up to which the peer may send
	msgIOMap   msgType = 6 // the value is the index of the entry that was written
	msgControl msgType = 7 // the value is one of the constants below
)

// The values of a msgControl.
const (
	ctlDisconnect = 0 // the sender neither sends nor receives any more
	ctlKeepalive  = 1
	ctlShutdown   = 2 // the sender sends no more
)

const (
	typeShift = 29
	valueMask = 1<<typeShift - 1
)

func message(t msgType, value uint32) uint32 { return uint32(t)<<typeShift | value&valueMask }

func typeOf(imm uint32) msgType { return msgType(imm >> typeShift) }

func valueOf(imm uint32) uint32 { return imm & valueMask }

// An sge is memory of one side that the other one writes to (struct rs_sge).
type sge struct {
	addr   uint64
	key    uint32
	length uint32
}

func (s *sge) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, s.addr)
	order.PutUint32(b[8:], s.key)
	order.PutUint32(b[12:], s.length)
}

func parseSGE(b []byte, order binary.ByteOrder) sge {
	return sge{addr: order.Uint64(b), key: order.Uint32(b[8:]), length: order.Uint32(b[12:])}
}

// connData is the data that both sides exchange when they connect (struct rs_conn_data).
type connData struct {
	bigEndian bool
	credits   uint16 // messages with data that may be sent at first
	mappings  int    // the size of the list of mappings, which follows the list of targets
	targets   sge    // the list of targets; the length is the number of entries
	ring      sge    // the first target
}

// scaled and unscaled encode and decode the size of the list of mappings in a byte: exactly up to
// 128, and above that in multiples of 256.
func scaled(n int) byte {
	if n > 128 {
		return 128 | byte(min(n>>8, 127))
	}
	return byte(n)
}

func unscaled(b byte) int {
	if b > 128 {
		return int(b&127) << 8
	}
	return int(b)
}

// A mapping is memory that the other side writes to by an offset (struct rs_iomap).
type mapping struct {
	offset uint64
	memory sge
}

const mappingLen = 8 + sgeLen

func (m *mapping) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, m.offset)
	m.memory.put(b[8:], order)
}

func parseMapping(b []byte, order binary.ByteOrder) mapping {
	return mapping{order.Uint64(b), parseSGE(b[8:], order)}
}

// find returns how many bytes from an offset on are in the mapping, and where.
func (m *mapping) find(offset uint64) (addr uint64, n int) {
	if offset < m.offset || offset-m.offset >= uint64(m.memory.length) {
		return 0, 0
	}
	within := offset - m.offset
	return m.memory.addr + within, int(uint64(m.memory.length) - within)
}

func (d *connData) bytes() []byte {
	b := make([]byte, connDataLen)
	b[0], b[1] = version, flagIOMap
	if d.bigEndian {
		b[1] |= flagNet
	}
	binary.BigEndian.PutUint16(b[2:], d.credits)
	b[7] = scaled(d.mappings)
	d.targets.put(b[8:], binary.BigEndian)
	d.ring.put(b[24:], binary.BigEndian)
	return b
}

// ErrProtocol says that the peer has broken the rules of the rsocket protocol. The connection
// has ended.
var ErrProtocol = errors.New("peer violates the rsocket protocol")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// parseConnData reads a peer's private data. Padding may follow it.
func parseConnData(b []byte) (connData, error) {
	if len(b) < connDataLen {
		return connData{}, violation("%d bytes of private data, want %d", len(b), connDataLen)
	}
	if b[0] != version {
		return connData{}, violation("version %d, want %d", b[0], version)
	}
	d := connData{
		bigEndian: b[1]&flagNet != 0,
		credits:   binary.BigEndian.Uint16(b[2:]),
		targets:   parseSGE(b[8:], binary.BigEndian),
		ring:      parseSGE(b[24:], binary.BigEndian),
	}
	if b[1]&flagIOMap != 0 {
		d.mappings = unscaled(b[7])
	}
	switch {
	case d.targets.length < 2 || d.targets.length > math.MaxUint16:
		return connData{}, violation("a list of %d targets", d.targets.length)
	case d.targets.addr > math.MaxUint64-uint64(d.targets.length)*sgeLen-uint64(d.mappings)*mappingLen:
		return connData{}, violation("the list of targets is at %#x", d.targets.addr)
	case !d.ring.fits():
		return connData{}, violation("a target of %d bytes at %#x", d.ring.length, d.ring.addr)
	}
	return d, nil
}

// fits reports whether the memory ends within the address space.
func (s *sge) fits() bool { return s.addr <= math.MaxUint64-uint64(s.length) }
