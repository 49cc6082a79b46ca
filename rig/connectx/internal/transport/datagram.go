package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

// sizeGRH is the room for a GRH at the beginning of a datagram's receive buffer. It is
// reserved even if the datagram has none.
const sizeGRH = 40

// groupQPN is the queue pair number of packets to a group.
const groupQPN = 0xffffff

// sendDatagram sends a whole message.
func (q *QP) sendDatagram(w *sendWQE) {
	d := &w.dest
	p := fabric.NewPacket()
	port := q.e.address(p, &d.path)
	h := bth{
		op:        classUD | opSendOnly,
		pkey:      q.e.pkey(d.path.Port, d.path.PKeyIndex),
		qpn:       d.qpn,
		psn:       w.first,
		pad:       pad(w.length),
		solicited: w.flags&ctrlSolicited != 0,
	}
	if w.extra == extraImm {
		h.op = classUD | opSendOnlyImm
	}
	qkey, source := w.qkey, q.number
	if qkey>>31 != 0 {
		qkey = q.c.QKey // a privileged one in the WQE selects the QP's
	}
	switch {
	case q.c.DethSQPN != 0:
		source = q.c.DethSQPN
	case q.c.Service == QP1:
		source = 1
	case q.c.Service == QP0:
		source = 0
	}
	p.Data = appendBTH(p.Data, h)
	p.Data = binary.BigEndian.AppendUint32(p.Data, qkey)
	p.Data = binary.BigEndian.AppendUint32(p.Data, source)
	if w.extra == extraImm {
		p.Data = binary.BigEndian.AppendUint32(p.Data, w.imm)
	}
	var f mkey.Fault
	if p.Data, f = q.gather(p.Data, w, 0, w.length); f != mkey.FaultNone {
		p.Free()
		q.localFault(w, f)
		return
	}
	p.Data = append(p.Data, zeros[:h.pad]...)
	q.advance()
	q.transmit(port, p)
	q.req.acked = w.last()
	q.complete()
}

// receiveDatagram handles a datagram for one queue pair.
func (q *QP) receiveDatagram(h bth, p *fabric.Packet) {
	if !q.receives() || !q.datagram() {
		return
	}
	r := reader{b: p.Data[sizeBTH:]}
	qkey := binary.BigEndian.Uint32(r.take(4))
	source := binary.BigEndian.Uint32(r.take(4)) & psnMask
	kind, word := cq.ResponderSend, uint32(0)
	switch h.op & opMask {
	case opSendOnly:
	case opSendOnlyImm:
		kind, word = cq.ResponderSendImm, binary.BigEndian.Uint32(r.take(sizeImm))
	default:
		return
	}
	if r.bad || len(r.b) < h.pad || q.c.Service != QP0 && qkey != q.c.QKey {
		return
	}
	data := r.b[:len(r.b)-h.pad]
	if len(data) > q.mtu && q.c.Service != QP0 && q.c.Service != QP1 {
		return
	}
	q.established()
	x := &q.resp
	a := arrival{h: h, p: p, pd: q.c.PD}
	if !q.needDatagram() {
		return
	}
	if sizeGRH+len(data) > x.wqe.length {
		q.counters().RespLocalLength++
		q.breakDown(cq.SyndromeLocalLength, vendorLength, nakInvalidRequest)
		return
	}
	f := mkey.FaultNone
	if p.HasGRH {
		if q.mutates(mutant.GRHSwap) {
			h := p.GRH
			copy(p.GRH[8:24], h[24:40])
			copy(p.GRH[24:40], h[8:24])
			p.GRH[9] ^= 1
		}
		f = q.e.scatter(x.wqe.segs, 0, p.GRH[:], a.pd, q.localKey(&a))
	}
	if f == mkey.FaultNone {
		f = q.e.scatter(x.wqe.segs, sizeGRH, data, a.pd, q.localKey(&a))
	}
	if q.receiveFault(f) {
		return
	}
	if f != mkey.FaultNone {
		q.counters().RespLocalProtection++
		q.breakDown(cq.SyndromeLocalProt, vendorKey+uint8(f), nakRemoteOperation)
		return
	}
	c := cq.Completion{
		Kind:       kind,
		QPN:        q.number,
		WQECounter: x.wqe.index,
		ByteCount:  uint32(sizeGRH + len(data)),
		Imm:        word,
		Solicited:  h.solicited,
		RemoteQPN:  source,
	}
	origin(&c, p)
	if kind == cq.ResponderSend {
		c.Imm = uint32(q.c.Primary.PKeyIndex)
		if q.c.Service == QP1 {
			c.Imm = uint32(h.pkey)
		}
	}
	var cqn uint32
	cqn, c.UserIndex = q.recvTarget()
	x.wqe.used = false
	q.postTo(cqn, &c)
}

// needDatagram consumes a receive WQE.
func (q *QP) needDatagram() bool {
	if q.resp.wqe.used {
		return true
	}
	if !q.takeWQE(q.srq) {
		q.counters().OutOfBuffer++
		return false
	}
	return !q.injectReceive()
}
