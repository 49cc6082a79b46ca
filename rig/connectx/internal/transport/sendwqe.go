package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// Opcodes of send WQEs, MLX5_OPCODE_*.
const (
	wqeNop      = 0x00
	wqeSendInv  = 0x01
	wqeWrite    = 0x08
	wqeWriteImm = 0x09
	wqeSend     = 0x0a
	wqeSendImm  = 0x0b
	wqeLSO      = 0x0e
	wqeRead     = 0x10
	wqeCS       = 0x11
	wqeFA       = 0x12
	wqeMaskedCS = 0x14
	wqeMaskedFA = 0x15
	wqeLocalInv = 0x1b
	wqeSetPSV   = 0x20
	wqeUMR      = 0x25
	wqeTags     = 0x28
)

// Fields of the control segment's fm_ce_se.
const (
	ctrlSolicited = 1 << 1
	ctrlSignal    = 1 << 3
	ctrlFenceMask = 7 << 5

	fenceSmall    = 1 << 5 // after changes of memory keys, which are never pending here
	fenceReads    = 2 << 5
	fenceStrong   = 3 << 5
	fenceBothKind = 4 << 5
)

// Vendor syndromes. Some are known from drivers' logs on hardware. The others are this
// model's own, because the hardware's are not published.
const (
	vendorOpcode    = 0x61 // unknown opcode, or one that the service doesn't support
	vendorSize      = 0x62 // ds is 0, or more than what was posted
	vendorControl   = 0x63 // queue pair number or index are not the WQE's
	vendorSegment   = 0x64 // a segment is cut off
	vendorSignature = 0x65
	vendorLength    = 0x66
	vendorMemory    = 0x67 // the ring itself is not readable
	vendorResponse  = 0x68
	vendorKey       = 0x70 // + mkey.Fault
	vendorRetries   = 0x81
	vendorRNR       = 0x87
	vendorAccess    = 0x88
	vendorOperation = 0x89
	vendorRequest   = 0x8a
	vendorFlush     = 0xf9
)

// action is what a send WQE does.
type action uint8

const (
	actLocal action = iota // nothing is sent
	actSend
	actWrite
	actRead
	actAtomic
	actConnect // to a DCT; not a WQE of the driver
)

// extra is the additional header of a message's last packet.
type extra uint8

const (
	extraNone extra = iota
	extraImm
	extraInv
)

// sendWQE is a WQE in execution.
type sendWQE struct {
	raw   []byte // a copy of the whole WQE
	index uint16
	bbs   uint16 // its size in 64 bytes

	op     uint8
	opmod  uint8
	flags  uint8
	imm    uint32
	stream uint16 // of a DCI
	act    action
	extra  extra
	local  bool // executed, if actLocal
	done   bool // finished, if actLocal, actRead or actAtomic
	inline bool // the response goes to the CQE

	segs   []sendSegment
	length int

	fetches *rendezvous // it isn't a WQE of the driver, but part of this

	raddr    uint64
	rkey     uint32
	srqn     uint32 // of XRC
	atomic   [4]uint64
	atomSize int
	dest     destination
	qkey     uint32
	frame    []byte // the beginning of an Ethernet frame, inline
	mss      int
	checks   uint8
	response [64]byte // of an inline response
	syndrome uint8    // if not 0, it failed, and completes with this in order
	vendor   uint8
	first    uint32 // sequence numbers
	packets  int
	readNext int // packets of the response that arrived
}

// sendSegment is a data segment, or inline data.
type sendSegment struct {
	segment
	inline []byte
}

// destination has the fields of an address vector.
type destination struct {
	path Path
	qpn  uint32
	key  uint64
}

func (w *sendWQE) last() uint32   { return psnAdd(w.first, w.packets-1) }
func (w *sendWQE) signaled() bool { return w.flags&ctrlSignal != 0 }
func (w *sendWQE) answered() bool { return w.act == actRead || w.act == actAtomic }

func (w *sendWQE) fail(syndrome, vendor uint8) {
	if w.syndrome == 0 {
		w.syndrome, w.vendor = syndrome, vendor
	}
}

// clear resets w for another WQE but keeps its memory.
func (w *sendWQE) clear() {
	*w = sendWQE{raw: w.raw[:0], segs: w.segs[:0]}
}

// fetch fetches the next WQE of the send queue into w. It reports false if there is none.
// If the WQE is invalid, its syndrome says why.
func (q *QP) fetch(w *sendWQE) bool {
	if q.sqBroken {
		return false
	}
	posted := q.sqPosted()
	if posted == 0 {
		return false
	}
	w.clear()
	w.index, w.bbs = q.sqNext, 1
	mask := uint16(1)<<q.c.LogSQSize - 1
	at := func(bb uint16) uint64 { return q.sqOffset + uint64(bb&mask)*64 }
	copied := q.fromCopy(w, posted)
	if copied {
		q.sameAsRing(w, at)
		q.e.copies++
	} else {
		w.raw = grow(w.raw, 64)
	}
	if posted > mask+1 && q.c.LogSQSize < 16 || !copied && !readRing(q.e, &q.c.Buffer, at(q.sqNext), w.raw) {
		// The ring can't be trusted, so the rest of it is ignored.
		q.sqBroken = true
		w.fail(cq.SyndromeLocalQPOp, vendorMemory)
		return true
	}
	ds := int(w.raw[7] & 0x3f)
	if w.raw[7]&^0x3f != 0 {
		q.e.violation("queue %#x: WQE %d has %#x in the byte for the number of its segments, of up to 63", q.number, w.index, w.raw[7])
	}
	w.bbs = uint16(max(1, (ds+3)/4))
	if ds == 0 || w.bbs > posted {
		w.op = w.raw[3]
		w.bbs = min(w.bbs, posted)
		q.sqNext += w.bbs
		w.fail(cq.SyndromeLocalQPOp, vendorSize)
		return true
	}
	w.raw = grow(w.raw, int(w.bbs)*64)
	for i := uint16(1); i < w.bbs && !copied; i++ {
		if !readRing(q.e, &q.c.Buffer, at(q.sqNext+i), w.raw[i*64:i*64+64]) {
			q.sqBroken = true
			w.fail(cq.SyndromeLocalQPOp, vendorMemory)
			return true
		}
	}
	w.raw = w.raw[:ds*16]
	q.sqNext += w.bbs
	q.mutateWQE(w, copied)
	q.parse(w)
	if q.errored[w.stream] {
		w.fail(cq.SyndromeFlush, vendorFlush)
	}
	q.mutateSend(w)
	return true
}

// grow returns b with a length of n, its content kept.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		c := make([]byte, n, maxWQE)
		copy(c, b)
		return c
	}
	return b[:n]
}

// parse parses a WQE.
func (q *QP) parse(w *sendWQE) {
	ctrl := w.raw
	w.opmod, w.op = ctrl[0], ctrl[3]
	w.flags = ctrl[11]
	w.imm = binary.BigEndian.Uint32(ctrl[12:])
	w.stream = binary.BigEndian.Uint16(ctrl[9:])
	if binary.BigEndian.Uint16(ctrl[1:]) != w.index || binary.BigEndian.Uint32(ctrl[4:])>>8 != q.number {
		w.fail(cq.SyndromeLocalQPOp, vendorControl)
		return
	}
	if q.c.WQSignature && !signed(w.raw) {
		w.fail(cq.SyndromeLocalQPOp, vendorSignature)
		return
	}
	if !q.classify(w) {
		w.fail(cq.SyndromeLocalQPOp, vendorOpcode)
		return
	}
	r := reader{b: w.raw[16:]}
	if w.act == actLocal {
		return
	}
	q.parseTransport(w, &r)
	switch w.act {
	case actWrite, actRead, actAtomic:
		s := r.take(16)
		w.raddr, w.rkey = binary.BigEndian.Uint64(s), binary.BigEndian.Uint32(s[8:])
	}
	if w.act == actAtomic {
		w.parseAtomic(&r)
	}
	if r.bad || !q.parseData(w, r.b) {
		w.fail(cq.SyndromeLocalQPOp, vendorSegment)
		return
	}
	q.measure(w)
}

// signed reports whether a WQE's signature is right.
func signed(b []byte) bool {
	var x byte
	for _, v := range b {
		x ^= v
	}
	return x == 0xff
}

// classify sets the opcode's action, and reports whether the service supports it.
func (q *QP) classify(w *sendWQE) bool {
	connected := q.reliable() || q.c.Service == UC
	switch w.op {
	case wqeNop, wqeSetPSV:
		w.act = actLocal
		return true
	case wqeUMR, wqeLocalInv:
		w.act = actLocal
		return connected || q.c.Service == RegUMR
	case wqeLSO:
		w.act = actSend
		return q.c.Service == Raw && q.e.c.LogLSO > 0
	case wqeTags:
		w.act = actLocal
		return q.c.Service == RC && q.srq != nil && q.srq.c.TM
	case wqeSend, wqeSendImm:
		w.act = actSend
		if w.op == wqeSendImm {
			w.extra = extraImm
		}
		return q.c.Service != RegUMR && (q.c.Service != Raw || w.op == wqeSend)
	case wqeSendInv:
		w.act, w.extra = actSend, extraInv
		return connected
	case wqeWrite:
		w.act = actWrite
		return connected
	case wqeWriteImm:
		w.act, w.extra = actWrite, extraImm
		return connected
	case wqeRead:
		w.act = actRead
		return q.reliable()
	case wqeCS, wqeFA, wqeMaskedCS, wqeMaskedFA:
		w.act = actAtomic
		masked := w.op == wqeMaskedCS || w.op == wqeMaskedFA
		return q.reliable() && !(masked && q.e.c.PlainAtomics)
	}
	return false
}

// parseTransport reads the segment that some services have.
func (q *QP) parseTransport(w *sendWQE, r *reader) {
	switch q.c.Service {
	case XRC:
		w.srqn = binary.BigEndian.Uint32(r.take(16)) & psnMask
	case UD, DCI, MLX, QP0, QP1:
		q.parseAV(w, r)
	case Raw:
		q.parseFrame(w, r)
	}
}

// parseAV reads an address vector, of 16 bytes or, with its extension, of 48.
func (q *QP) parseAV(w *sendWQE, r *reader) {
	b := r.take(16)
	d := &w.dest
	d.key = binary.BigEndian.Uint64(b)
	w.qkey = binary.BigEndian.Uint32(b)
	dqp := binary.BigEndian.Uint32(b[8:])
	d.qpn = dqp & psnMask
	d.path = Path{
		Port:      q.c.Primary.Port,
		PKeyIndex: q.c.Primary.PKeyIndex,
		SL:        b[12] & 0xf,
		PathBits:  b[13] & 0x7f,
		DLID:      binary.BigEndian.Uint16(b[14:]),
	}
	if dqp>>31 == 0 {
		r.bad = r.bad || q.e.ethernet() // without its extension, it has no RoCE address
		return
	}
	if q.e.ethernet() {
		d.path.Priority = d.path.SL >> 1
	}
	b = r.take(32)
	d.path.MAC = fabric.MAC(b[4:])
	g := binary.BigEndian.Uint32(b[12:])
	d.path.TClass, d.path.HopLimit = b[10], b[11]
	d.path.GRH = g>>30&1 != 0
	d.path.SGIDIndex = uint8(g >> 20)
	d.path.FlowLabel = g & 0xfffff
	d.path.DGID = fabric.GID(b[16:32])
}

// parseAtomic reads the operands: swap or add, and compare. Masked operations also have
// the masks of swap and compare, or the boundaries of an addition's fields.
func (w *sendWQE) parseAtomic(r *reader) {
	w.atomSize = 8
	switch w.op {
	case wqeCS, wqeFA:
		b := r.take(16)
		w.atomic[0], w.atomic[1] = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
		return
	}
	if w.opmod&8 != 0 && w.opmod&7 == 0 {
		w.atomSize = 4
	} else if w.opmod != 0 && w.opmod != 9 {
		r.bad = true
		return
	}
	switch {
	case w.atomSize == 4:
		b := r.take(16)
		for i := range w.atomic {
			w.atomic[i] = uint64(binary.BigEndian.Uint32(b[4*i:]))
		}
		if w.op == wqeMaskedFA {
			w.atomic[2], w.atomic[1], w.atomic[3] = w.atomic[1], 0, 0
		}
	case w.op == wqeMaskedCS:
		b := r.take(32)
		for i := range w.atomic {
			w.atomic[i] = binary.BigEndian.Uint64(b[8*i:])
		}
	default:
		b := r.take(16)
		w.atomic[0], w.atomic[2] = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	}
}

// parseData reads data segments and inline data up to the WQE's end.
func (q *QP) parseData(w *sendWQE, b []byte) bool {
	for len(b) >= 16 {
		n := binary.BigEndian.Uint32(b)
		if n>>31 != 0 {
			const most = 0x3ff
			if n&^(1<<31) > most {
				q.e.violation("queue %#x: WQE %d has inline data of %d bytes, of up to %d", q.number, w.index, n&^(1<<31), most)
			}
			if w.answered() {
				q.e.violation("queue %#x: WQE %d has inline data where an answer is to go", q.number, w.index)
			}
			n &= most
			if int(n) > len(b)-4 {
				return false
			}
			w.segs = append(w.segs, sendSegment{segment{length: int(n)}, b[4 : 4+n]})
			w.length += int(n)
			b = b[min(len(b), (int(n)+4+15)&^15):]
			continue
		}
		if n == 0 {
			n = 1 << 31 // as documented; drivers omit empty segments
		}
		w.segs = append(w.segs, sendSegment{segment{int(n), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}, nil})
		w.length += int(n)
		b = b[16:]
	}
	return true
}

// measure checks the message's length and computes its number of packets.
func (q *QP) measure(w *sendWQE) {
	switch w.act {
	case actAtomic:
		w.packets = 1
		if w.length < w.atomSize {
			w.fail(cq.SyndromeLocalLength, vendorLength)
		}
		w.length = w.atomSize
		return
	}
	if q.c.Service == Raw {
		q.measureFrame(w)
		return
	}
	limit := 1 << q.c.LogMsgMax
	if q.datagram() {
		limit = q.mtu
		w.packets = 1
	} else {
		w.packets = max(1, (w.length+q.mtu-1)/q.mtu)
	}
	if w.length > limit {
		w.fail(cq.SyndromeLocalLength, vendorLength)
	}
}

func (q *QP) datagram() bool {
	switch q.c.Service {
	case UD, MLX, QP0, QP1:
		return true
	}
	return false
}

// gather appends n bytes of the message, from offset off on, to b.
func (q *QP) gather(b []byte, w *sendWQE, off, n int) ([]byte, mkey.Fault) {
	e := q.e
	for i := range w.segs {
		s := &w.segs[i]
		if off >= s.length {
			off -= s.length
			continue
		}
		if n == 0 {
			break
		}
		m := min(n, s.length-off)
		if s.inline != nil {
			b = append(b, s.inline[off:off+m]...)
		} else {
			if s.key == mkey.ReservedLkey && !q.c.RLKey {
				return b, mkey.FaultKey
			}
			var f mkey.Fault
			e.pieces, f = e.c.Keys.Resolve(e.pieces[:0], s.key, q.c.PD, mkey.AnyQP, s.addr+uint64(off), m, mkey.LocalRead)
			if f != mkey.FaultNone {
				return b, f
			}
			for _, p := range e.pieces {
				b = append(b, p...)
			}
		}
		n -= m
		off = 0
	}
	return b, mkey.FaultNone
}
