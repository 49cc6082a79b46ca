package loop

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// QP is a queue pair and its rings.
type QP struct {
	H          *HCA
	Number     uint32
	Send, Recv *CQ
	c          transport.QPContext
	buf, dbr   []byte
	sq         []byte
	sqPI, rqPI uint16
	last       [8]byte // the first bytes of the last WQE, for the doorbell
}

// NewQP creates a queue pair in state Reset. Fields of c that matter are the sizes (0
// stands for 6 of the send queue, 6 and 64 bytes of the receive queue), the service, the
// SRQ and flags.
func (h *HCA) NewQP(send, recv *CQ, c transport.QPContext) *QP {
	q := &QP{H: h, Send: send, Recv: recv}
	if c.LogSQSize == 0 {
		c.LogSQSize = 6
	}
	rq := 0
	if c.RQType == transport.OwnRQ {
		if c.LogRQSize == 0 {
			c.LogRQSize, c.LogRQStride = 6, 2
		}
		rq = 16 << c.LogRQStride << c.LogRQSize
	}
	c.Buffer, q.buf = h.buffer(rq + 64<<c.LogSQSize)
	q.sq = q.buf[rq:]
	c.DBRAddr, q.dbr = h.Alloc(8)
	if c.PD == 0 {
		c.PD = PD
	}
	if c.CQNSend = send.Number; recv != nil {
		c.CQNRecv = recv.Number
	}
	if c.UserIndex == 0 {
		c.UserIndex = 0xffffff
	}
	var err error
	if q.Number, err = h.Engine.CreateQP(c); err != nil {
		panic(err)
	}
	q.c = c
	return q
}

// Attributes returns the attributes with which Connect moves a queue pair to RTS, for a
// test to change. To is its peer.
func Attributes(to *QP) transport.QPContext {
	c := transport.QPContext{
		MTU: 3, LogMsgMax: 30, RRE: true, RWE: true, RAE: true, AtomicMode: 1,
		LogSRAMax: 3, LogRRAMax: 4, RetryCount: 6, RNRRetry: 7, MinRNRNak: 12,
		QKey: 0x1234,
	}
	c.Primary.AckTimeout = 14
	if to != nil {
		c.RemoteQPN = to.Number
		c.Primary.DLID = to.H.Port.LID()
		if a, ok := to.H.Engine.Address(1, IPv4); ok {
			c.Primary.SGIDIndex, c.Primary.DGID, c.Primary.MAC, c.Primary.HopLimit = IPv4, a.GID, a.MAC, 64
		}
	}
	return c
}

// Modify moves the queue pair through all states to RTS.
func (q *QP) Modify(c transport.QPContext) {
	for _, op := range []transport.Transition{transport.Rst2Init, transport.Init2RTR, transport.RTR2RTS} {
		if err := q.H.Engine.ModifyQP(q.Number, op, 0, &c); err != nil {
			panic(err)
		}
	}
}

// Connect moves both to RTS. If change isn't nil, it may change the attributes.
func Connect(a, b *QP, change func(q *QP, c *transport.QPContext)) {
	for _, x := range [2][2]*QP{{a, b}, {b, a}} {
		c := Attributes(x[1])
		c.NextSendPSN = x[0].Number * 7 & 0xffffff
		c.NextRecvPSN = x[1].Number * 7 & 0xffffff
		if change != nil {
			change(x[0], &c)
		}
		x[0].Modify(c)
	}
}

// State returns the queue pair's state.
func (q *QP) State() transport.State {
	c, _ := q.H.Engine.QueryQP(q.Number)
	return c.State
}

// Opcodes of send WQEs, MLX5_OPCODE_*.
const (
	Nop      = 0x00
	SendInv  = 0x01
	Write    = 0x08
	WriteImm = 0x09
	Send     = 0x0a
	SendImm  = 0x0b
	LSO      = 0x0e
	Read     = 0x10
	CS       = 0x11
	FA       = 0x12
	MaskedCS = 0x14
	MaskedFA = 0x15
	LocalInv = 0x1b
	UMR      = 0x25
)

// Signaled requests a completion, Solicited an event at the peer.
const (
	Signaled  = 2 << 2
	Solicited = 1 << 1
	Fence     = 2 << 5
)

// WQE begins a send WQE. The functions below append segments, and Post completes the
// control segment.
func WQE(opcode uint8, flags uint8, imm uint32) []byte {
	b := make([]byte, 16, 256)
	b[3], b[11] = opcode, flags
	binary.BigEndian.PutUint32(b[12:], imm)
	return b
}

// Raddr appends a remote address segment.
func Raddr(b []byte, addr uint64, rkey uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, addr)
	b = binary.BigEndian.AppendUint32(b, rkey)
	return append(b, 0, 0, 0, 0)
}

// Words appends 64-bit operands of atomics.
func Words(b []byte, v ...uint64) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	return b
}

// Data appends a data segment.
func Data(b []byte, addr uint64, n int, lkey uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = binary.BigEndian.AppendUint32(b, lkey)
	return binary.BigEndian.AppendUint64(b, addr)
}

// Inline appends inline data.
func Inline(b, data []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(data)))
	b = append(b, data...)
	return append(b, make([]byte, -len(b)&15)...)
}

// AV appends an address vector with its extension. A nonzero DGID requests a GRH.
func AV(b []byte, key uint64, qpn uint32, dlid uint16, dgid [16]byte) []byte {
	b = binary.BigEndian.AppendUint64(b, key)
	b = binary.BigEndian.AppendUint32(b, 1<<31|qpn)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, dlid)
	var x [16]byte
	if dgid != x {
		x[12] = 1 << 6
	}
	return append(append(b, x[:]...), dgid[:]...)
}

// Post writes a WQE to the send queue. Ring rings the doorbell.
func (q *QP) Post(b []byte) (index uint16) {
	index = q.sqPI
	binary.BigEndian.PutUint16(b[1:], index)
	binary.BigEndian.PutUint32(b[4:], q.Number<<8|uint32(len(b)+15)/16)
	q.PostRaw(b)
	return index
}

// PostRaw writes a WQE unchanged, and advances the producer index by its blocks of 64
// bytes, at least one.
func (q *QP) PostRaw(b []byte) {
	copy(q.last[:], b)
	blocks := max(1, (len(b)+63)/64)
	for i := range blocks {
		at := int(q.sqPI+uint16(i)) & (1<<q.c.LogSQSize - 1) * 64
		copy(q.sq[at:at+64], b[min(len(b), i*64):])
	}
	q.sqPI += uint16(blocks)
}

// Ring writes the doorbell record and rings the doorbell.
func (q *QP) Ring() {
	bus.Store32(q.dbr[4:], uint32(q.sqPI))
	q.Bell(q.c.UAR)
}

// Bell rings the doorbell at a UAR without updating the record.
func (q *QP) Bell(uar uint32) { q.H.Engine.Doorbell(uar, 0x800, q.last[:]) }

// Records returns the doorbell records of the receive queue and of the send queue.
func (q *QP) Records() (receive, send []byte) { return q.dbr[:4], q.dbr[4:8] }

// Flame is Ring with a copy of the WQE.
func (q *QP) Flame(wqe []byte) {
	bus.Store32(q.dbr[4:], uint32(q.sqPI))
	copied := make([]byte, (len(wqe)+63)&^63)
	copy(copied, wqe)
	q.H.Engine.Doorbell(q.c.UAR, 0x800, copied)
}

// PostRing is Post and Ring.
func (q *QP) PostRing(b []byte) uint16 {
	i := q.Post(b)
	q.Ring()
	return i
}

// PostRecv posts a receive WQE of data segments (see Data).
func (q *QP) PostRecv(segs []byte) {
	stride := 16 << q.c.LogRQStride
	at := int(q.rqPI) & (1<<q.c.LogRQSize - 1) * stride
	putRecv(q.buf[at:at+stride], segs)
	q.rqPI++
	bus.Store32(q.dbr, uint32(q.rqPI))
}

func putRecv(to, segs []byte) {
	n := copy(to, segs)
	if n < len(to) {
		copy(to[n:], Data(nil, 0, 0, mkey.InvalidLkey))
	}
}

// Reset moves the queue pair to Reset, and resets its rings.
func (q *QP) Reset() {
	if err := q.H.Engine.ModifyQP(q.Number, transport.ToRst, 0, nil); err != nil {
		panic(err)
	}
	q.sqPI, q.rqPI = 0, 0
	clear(q.dbr)
}

// Sent returns how many blocks of 64 bytes were posted.
func (q *QP) Sent() uint16 { return q.sqPI }

// SRQ is a shared receive queue and its ring.
type SRQ struct {
	H        *HCA
	Number   uint32
	buf, dbr []byte
	stride   int
	free     []uint16 // WQEs that software owns, in posting order
	posted   uint16
}

// NewSRQ creates an SRQ, an XRC SRQ (if c says so) or an RMP of 1<<log WQEs of 64 bytes.
func (h *HCA) NewSRQ(log uint8, c transport.SRQContext) *SRQ {
	s := &SRQ{H: h, stride: 64}
	c.LogSize, c.LogStride = log, 2
	c.Buffer, s.buf = h.buffer(64 << log)
	c.DBRAddr, s.dbr = h.Alloc(8)
	if c.PD == 0 {
		c.PD = PD
	}
	if c.UserIndex == 0 {
		c.UserIndex = 0xffffff
	}
	for i := range uint16(1) << log {
		s.free = append(s.free, i)
		s.Link(i, (i+1)&(1<<log-1))
	}
	var err error
	if s.Number, err = h.Engine.CreateSRQ(c); err != nil {
		panic(err)
	}
	return s
}

// Link makes WQE from point to WQE to.
func (s *SRQ) Link(from, to uint16) {
	binary.BigEndian.PutUint16(s.buf[int(from)*s.stride+2:], to)
}

// Post posts a WQE of data segments and returns its index. Software always keeps one WQE
// as the end of the list.
func (s *SRQ) Post(segs []byte) uint16 {
	if len(s.free) < 2 {
		panic("the SRQ is full")
	}
	i := s.free[0]
	s.free = s.free[1:]
	putRecv(s.buf[int(i)*s.stride+16:int(i+1)*s.stride], segs)
	s.posted++
	bus.Store32(s.dbr, uint32(s.posted))
	return i
}

// Record returns the doorbell record.
func (s *SRQ) Record() []byte { return s.dbr[:4] }

// Return appends a completed WQE to the list.
func (s *SRQ) Return(i uint16) {
	s.Link(s.free[len(s.free)-1], i)
	s.free = append(s.free, i)
}

// Second is a limit for Idle that no healthy exchange reaches.
const Second = time.Second
