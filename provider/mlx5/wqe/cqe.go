package wqe

import "sync/atomic"

// A CQE is a completion queue entry of 64 bytes (struct mlx5_cqe64), or the second half of an entry
// of 128 bytes. Its fields are in the device's byte order; the methods convert them.
type CQE struct {
	head      [4]uint64 // for responders; inline data can replace everything up to timestamp
	srqnUIDX  uint32
	imm       uint32
	app       uint32 // app, app_op and app_info, for tag matching
	byteCount uint32
	timestamp uint64
	opQPN     uint32
	tail      uint32 // wqe_counter, signature, op_own: the device writes op_own last
}

// CQESize is the length of a CQE, in bytes.
const CQESize = 64

// A CQEOpcode is the kind of a CQE (MLX5_CQE_*).
type CQEOpcode uint8

const (
	CQERequester      CQEOpcode = 0
	CQEResponderWrite CQEOpcode = 1 // with immediate
	CQEResponderSend  CQEOpcode = 2
	CQEResponderImm   CQEOpcode = 3
	CQEResponderInv   CQEOpcode = 4
	CQEResize         CQEOpcode = 5
	CQENoPacket       CQEOpcode = 6
	CQESignatureError CQEOpcode = 12
	CQERequesterError CQEOpcode = 13
	CQEResponderError CQEOpcode = 14
	CQEInvalid        CQEOpcode = 15 // never written by the device
)

// The lower half of op_own, in a tail.
const (
	tailOwner      = 1 << 24
	tailScatter32  = 4 << 24
	tailScatter64  = 8 << 24
	tailCompressed = tailScatter32 | tailScatter64
	tailSolicited  = 2 << 24
)

// A Tail is the last word of a CQE, read with one load.
type Tail uint32

// Load reads a CQE's tail. The rest of the CQE may be read only if the tail is Ready, and
// after mmio.FromDevice where loads are not ordered.
func (c *CQE) Load() Tail { return Tail(atomic.LoadUint32(&c.tail)) }

// Ready reports whether software owns the CQE in this round of the ring. round is the
// number of times that the ring has wrapped. Its lowest bit is the owner bit.
func (t Tail) Ready(round uint32) bool {
	return (uint32(t)^round<<24)&tailOwner == 0 && t < Tail(CQEInvalid)<<28
}

// PlainSend reports whether the CQE is Ready in this round, is Plain, and completes a
// successful send.
func (t Tail) PlainSend(round uint32) bool {
	return uint32(t)&^tailSolicited>>24 == round&1
}

// Clear marks the CQE as not yet written by the device.
func (c *CQE) Clear() { c.tail = uint32(CQEInvalid) << 28 }

// End turns a CQE into the mark with which the device ends an old ring after a resize.
func (c *CQE) End(round uint32) { c.tail = uint32(CQEResize)<<28 | round&1<<24 }

// SetOwner sets the CQE's owner bit for a round.
func (c *CQE) SetOwner(round uint32) { c.tail = c.tail&^tailOwner | round&1<<24 }

// Opcode returns the kind of the CQE.
func (t Tail) Opcode() CQEOpcode { return CQEOpcode(t >> 28) }

// Counter returns the index of the WQE: of a send's first block, or of a receive's entry.
func (t Tail) Counter() uint32 { return be32(uint32(t)) >> 16 }

// Scatter32 and Scatter64 report whether up to 32 bytes of data are in the CQE itself, or
// up to 64 bytes in the half before it.
func (t Tail) Scatter32() bool { return t&tailCompressed == tailScatter32 }
func (t Tail) Scatter64() bool { return t&tailCompressed == tailScatter64 }

// Plain reports whether the CQE contains no data and is not compressed.
func (t Tail) Plain() bool { return t&tailCompressed == 0 }

// Compressed reports whether the CQE begins a group of compressed completions.
func (t Tail) Compressed() bool { return t&tailCompressed == tailCompressed }

// UserIndex returns the user index of the QP or SRQ in a CQE of version 1, or the SRQ's
// number in a CQE of version 0.
func (c *CQE) UserIndex() uint32 { return be32(c.srqnUIDX) & 0xffffff }

// QPN returns the number of the QP.
func (c *CQE) QPN() uint32 { return be32(c.opQPN) & 0xffffff }

// SendOpcode returns the opcode of the send WQE that completed.
func (c *CQE) SendOpcode() Opcode { return Opcode(c.opQPN) }

// ByteCount returns the length of the message, for receives and RDMA reads.
func (c *CQE) ByteCount() uint32 { return be32(c.byteCount) }

// Imm returns the immediate, in network byte order. In other CQEs the field is the
// invalidated key, or the P_Key index of a datagram: see Key.
func (c *CQE) Imm() uint32 { return c.imm }

// Key returns Imm in the processor's byte order.
func (c *CQE) Key() uint32 { return be32(c.imm) }

// Timestamp returns the time of the completion, in cycles of the device's clock.
func (c *CQE) Timestamp() uint64 { return be64(c.timestamp) }

// FlowTag returns the tag of the steering rule, for a raw packet.
func (c *CQE) FlowTag() uint32 { return be32(c.opQPN) & 0xffffff }

// VLAN returns the VLAN tag removed from a received packet, or 0 if none was removed.
func (c *CQE) VLAN() uint16 {
	v := be64(c.head[3])
	if v>>16&1 == 0 {
		return 0
	}
	return uint16(v)
}

// Source returns the sender of a message: its QP number, the service level, and whether
// there is a GRH.
func (c *CQE) Source() (qpn uint32, sl uint8, grh bool) {
	v := be32(uint32(c.head[3]))
	return v & 0xffffff, uint8(v>>24) & 0xf, v>>28&3 != 0
}

// SLID returns the sender's LID.
func (c *CQE) SLID() uint16 { return uint16(be64(c.head[2])) }

// PathBits returns the path bits of the message's destination LID.
func (c *CQE) PathBits() uint8 { return uint8(be64(c.head[2])>>48) & 0x7f }

// ChecksumOK reports whether the device has verified the checksums of an IPv4 packet.
func (c *CQE) ChecksumOK() bool {
	v := be64(c.head[3])
	return v>>24&6 == 6 && v>>18&3 == 2
}

// Error returns the syndrome and the vendor's syndrome of an error CQE.
func (c *CQE) Error() (syndrome, vendor uint8) {
	v := be64(c.timestamp)
	return uint8(v), uint8(v >> 8)
}

// Hardware returns the hardware syndrome of an error CQE, and its type.
func (c *CQE) Hardware() (typ, syndrome uint8) {
	v := be64(c.timestamp)
	return uint8(v >> 16), uint8(v >> 24)
}
