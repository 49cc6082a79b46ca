package rings

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// firstFD is the number of the device's file descriptor in the program.
const firstFD = 1000

// Last returns the program's last queue of a kind.
func Last(kind uint32) (Queue, error) {
	q := Queue{Kind: kind}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, firstFD, Where, uintptr(unsafe.Pointer(&q))); errno != 0 {
		return q, fmt.Errorf("no queue of kind %d on a fake device: %w", kind, errno)
	}
	return q, nil
}

// A Player completes the requests that are posted to one QP, on one CQ.
type Player struct {
	qp, cq   Queue
	sent     uint16 // the send queue's next block
	received uint16
	srqn     uint32  // the QP's SRQ, or 0
	produced *uint32 // the CQ's next entry, shared by all players of the CQ
}

// NewPlayer returns a player for a new QP and CQ.
func NewPlayer(qp, cq Queue) *Player { return &Player{qp: qp, cq: cq, produced: new(uint32)} }

// Another returns a player of another QP on the same CQ.
func (p *Player) Another(qp Queue) *Player { return &Player{qp: qp, cq: p.cq, produced: p.produced} }

// memory returns n bytes at an address from a driver. The memory is mapped, unknown to the
// garbage collector, and stays mapped while a player uses it.
func memory(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(nil, addr)), n)
}

// record reads a doorbell record.
func record(addr uint64, i int) uint32 {
	rec := memory(addr, 8)
	return bits.ReverseBytes32(atomic.LoadUint32((*uint32)(unsafe.Pointer(&rec[i*4]))))
}

// doorbell reads the QP's doorbell record: 0 for receives, 1 for sends.
func (p *Player) doorbell(i int) uint32 { return record(p.qp.DB, i) }

const (
	segment = 16 // the unit of WQE sizes
	block   = 64 // the unit of send queue indexes

	opRequester = 0
	opReceived  = 2
	signaled    = 2 << 2 // of the completion mode in the control segment
)

// CompleteSends completes all posted sends and returns how many completions it wrote: one
// for each signaled request.
func (p *Player) CompleteSends() (n int) {
	posted := uint16(p.doorbell(1))
	sq := memory(p.qp.Buf, int(p.qp.Len)*block)
	for p.sent != posted {
		ctrl := sq[int(p.sent)%int(p.qp.Len)*block:][:segment]
		head, qpnDS := binary.BigEndian.Uint32(ctrl), binary.BigEndian.Uint32(ctrl[4:])
		size := qpnDS & 0x3f * segment
		if index := uint16(head >> 8); index != p.sent || qpnDS>>8 != p.qp.Number || size == 0 {
			panic(fmt.Sprintf("block %d of QP %#x holds a WQE with index %d, QP %#x, %d bytes", p.sent, p.qp.Number, index, qpnDS>>8, size))
		}
		if ctrl[11]&(3<<2) == signaled {
			p.complete(opRequester, p.sent, 0, head&0xff)
			n++
		}
		p.sent += uint16((size + block - 1) / block)
	}
	return n
}

// CompleteRecvs completes all posted receives with messages of size bytes, and returns
// their number.
func (p *Player) CompleteRecvs(size uint32) (n int) {
	for posted := uint16(p.doorbell(0)); p.received != posted; p.received++ {
		p.complete(opReceived, p.received, size, 0)
		n++
	}
	return n
}

// noUserIndex is the index of a QP with version 0 entries. Their field has the number of a
// receive's SRQ, and is undefined for others.
const noUserIndex = 0xffffff

func (p *Player) userIndex(op byte) uint32 {
	switch {
	case p.qp.UserIndex != noUserIndex:
		return p.qp.UserIndex
	case op == opReceived:
		return p.srqn
	}
	return meaningless
}

const meaningless = 0x5a5a5a

func (p *Player) complete(op byte, counter uint16, size, wqeOpcode uint32) {
	i := *p.produced
	*p.produced++
	cq := memory(p.cq.Buf, int(p.cq.Len*p.cq.Stride))
	e := cq[(i%p.cq.Len+1)*p.cq.Stride-64:][:64] // the second half of large ones
	clear(e[:63])
	binary.BigEndian.PutUint32(e[32:], p.userIndex(op))
	binary.BigEndian.PutUint32(e[44:], size)
	binary.BigEndian.PutUint32(e[56:], wqeOpcode<<24|p.qp.Number)
	owner := byte(0)
	if i&p.cq.Len != 0 {
		owner = 1
	}
	var last [4]byte
	binary.BigEndian.PutUint16(last[:], counter)
	last[3] = op<<4 | owner
	// Write the owner bit last, after the rest of the entry.
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&e[60])), binary.NativeEndian.Uint32(last[:]))
}
