package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
)

// Opcodes of the base transport header: the upper three bits are the service, the rest the
// operation. Masked atomics and DC are vendor extensions, so their codes here are
// invented.
const (
	classRC  = 0x00
	classUC  = 0x20
	classUD  = 0x60
	classXRC = 0xa0
	classDC  = 0xc0

	opSendFirst    = 0x00
	opSendMiddle   = 0x01
	opSendLast     = 0x02
	opSendLastImm  = 0x03
	opSendOnly     = 0x04
	opSendOnlyImm  = 0x05
	opWriteFirst   = 0x06
	opWriteMiddle  = 0x07
	opWriteLast    = 0x08
	opWriteLastImm = 0x09
	opWriteOnly    = 0x0a
	opWriteOnlyImm = 0x0b
	opRead         = 0x0c
	opRespFirst    = 0x0d
	opRespMiddle   = 0x0e
	opRespLast     = 0x0f
	opRespOnly     = 0x10
	opAck          = 0x11
	opAtomicAck    = 0x12
	opCompareSwap  = 0x13
	opFetchAdd     = 0x14
	opSendLastInv  = 0x16
	opSendOnlyInv  = 0x17
	opMaskedCS     = 0x18
	opMaskedFA     = 0x19
	opConnect      = 0x1a
	opDisconnect   = 0x1b

	classMask = 0xe0
	opMask    = 0x1f
)

// Sizes of headers.
const (
	sizeBTH    = 12
	sizeXRCETH = 4
	sizeDCETH  = 16 // access key, source queue pair, reserved
	sizeDETH   = 8
	sizeRETH   = 16
	sizeAETH   = 4
	sizeAtomic = 28 // address, key, swap or add, compare
	sizeMasked = 48 // address, key, log of the size, four operands
	sizeImm    = 4
	sizeResult = 8
)

// Codes of the AETH's syndrome.
const (
	aethAck            = 0x1f // no end-to-end credits
	aethRNR            = 0x20 // and the timer's code
	nakSequence        = 0x60
	nakInvalidRequest  = 0x61
	nakRemoteAccess    = 0x62
	nakRemoteOperation = 0x63
)

const psnMask = 1<<24 - 1

// psnDiff returns a - b, modulo the sequence numbers.
func psnDiff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }

func psnAdd(psn uint32, n int) uint32 { return (psn + uint32(n)) & psnMask }

// bth is a parsed base transport header.
type bth struct {
	op        uint8
	solicited bool
	pad       int
	pkey      uint16
	qpn       uint32
	ackReq    bool
	psn       uint32
}

func parseBTH(b []byte) bth {
	return bth{
		op:        b[0],
		solicited: b[1]&0x80 != 0,
		pad:       int(b[1] >> 4 & 3),
		pkey:      binary.BigEndian.Uint16(b[2:]),
		qpn:       binary.BigEndian.Uint32(b[4:]) & psnMask,
		ackReq:    b[8]&0x80 != 0,
		psn:       binary.BigEndian.Uint32(b[8:]) & psnMask,
	}
}

func appendBTH(b []byte, h bth) []byte {
	flags := byte(h.pad<<4) | 0x40
	if h.solicited {
		flags |= 0x80
	}
	psn := h.psn
	if h.ackReq {
		psn |= 1 << 31
	}
	b = append(b, h.op, flags, byte(h.pkey>>8), byte(h.pkey))
	b = binary.BigEndian.AppendUint32(b, h.qpn)
	return binary.BigEndian.AppendUint32(b, psn)
}

// pad returns how many bytes pad n to a multiple of 4.
func pad(n int) int { return -n & 3 }

// reader reads a packet's headers. After a header is missing, all further ones are.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad = true
		r.b = nil
		return zeros[:n]
	}
	h := r.b[:n]
	r.b = r.b[n:]
	return h
}

var zeros [64]byte

// address fills in a packet's route.
func (e *Engine) address(p *fabric.Packet, path *Path) *fabric.Port {
	port := e.port(path.Port)
	if e.ethernet() {
		e.addressRoCE(p, path)
		return port
	}
	p.SLID, p.DLID, p.SL = port.LID(), path.DLID, path.SL
	if p.DLID == fabric.PermissiveLID {
		p.SLID = fabric.PermissiveLID // so that the answer, too, gets to the other end of the link
	}
	if path.GRH {
		p.HasGRH = true
		putGRH(&p.GRH, path, nextIsBTH, port.GID())
	}
	return port
}

// nextIsBTH says in a GRH that the base transport header follows.
const nextIsBTH = 0x1b

// putGRH writes a GRH or an IPv6 header, except for its length.
func putGRH(g *[40]byte, path *Path, next uint8, sgid fabric.GID) {
	binary.BigEndian.PutUint32(g[0:], 6<<28|uint32(path.TClass)<<20|path.FlowLabel&0xfffff)
	g[6], g[7] = next, path.HopLimit
	copy(g[8:], sgid[:])
	copy(g[24:], path.DGID[:])
}

// seal writes the fields that depend on the complete packet.
func seal(p *fabric.Packet) {
	if p.RoCE {
		sealRoCE(p)
	} else if p.HasGRH {
		binary.BigEndian.PutUint16(p.GRH[4:], uint16(len(p.Data)+4))
	}
}

func (e *Engine) port(n uint8) *fabric.Port {
	if n == 0 || int(n) > len(e.c.Ports) {
		n = 1
	}
	return e.c.Ports[n-1]
}

func (e *Engine) pkey(port uint8, index uint16) uint16 {
	if e.c.PKey == nil {
		return 0xffff
	}
	return e.c.PKey(max(port, 1), index)
}

// samePartition reports whether the numbers are equal and at least one is a full member.
func samePartition(a, b uint16) bool { return a&0x7fff == b&0x7fff && (a|b)&0x8000 != 0 }
