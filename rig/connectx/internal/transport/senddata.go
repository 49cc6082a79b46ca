package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// class returns the service bits of a packet's opcode.
func (q *QP) class() uint8 {
	switch q.c.Service {
	case UC:
		return classUC
	case XRC:
		return classXRC
	case DCI, DCT:
		return classDC
	case RC:
		return classRC
	}
	return classUD
}

// request begins a request packet. It includes the headers that a service has between the
// BTH and the operation's own headers.
func (q *QP) request(w *sendWQE, h bth) (*fabric.Port, *fabric.Packet) {
	p := fabric.NewPacket()
	path := &q.c.Primary
	h.qpn = q.c.RemoteQPN
	if q.c.Service == DCI {
		path, h.qpn = &w.dest.path, w.dest.qpn
	}
	port := q.e.address(p, path)
	h.op |= q.class()
	h.pkey = q.e.pkey(path.Port, q.c.Primary.PKeyIndex)
	p.Data = appendBTH(p.Data, h)
	switch q.c.Service {
	case XRC:
		p.Data = binary.BigEndian.AppendUint32(p.Data, w.srqn)
	case DCI:
		p.Data = binary.BigEndian.AppendUint64(p.Data, w.dest.key)
		p.Data = binary.BigEndian.AppendUint32(p.Data, q.number)
		p.Data = binary.BigEndian.AppendUint32(p.Data, 0)
	}
	return port, p
}

// sendData sends one packet of a SEND or an RDMA WRITE.
func (q *QP) sendData(w *sendWQE) {
	r := &q.req
	i := r.pkt
	off := i * q.mtu
	n := min(q.mtu, w.length-off)
	last := i == w.packets-1
	h := bth{psn: psnAdd(w.first, i), pad: pad(n)}
	h.op = dataOp(w, i == 0, last)
	h.ackReq = q.c.Service != UC && (last || i%ackEvery == ackEvery-1)
	h.solicited = last && w.flags&ctrlSolicited != 0
	port, p := q.request(w, h)
	if w.act == actWrite && i == 0 {
		p.Data = appendRETH(p.Data, w.raddr, w.rkey, w.length)
	}
	if last && w.extra != extraNone {
		p.Data = binary.BigEndian.AppendUint32(p.Data, w.imm)
	}
	var f mkey.Fault
	front := len(p.Data)
	if p.Data, f = q.gather(p.Data, w, off, n); f != mkey.FaultNone {
		p.Free()
		q.localFault(w, f)
		return
	}
	q.mutateData(p.Data[front:], w, off)
	p.Data = append(p.Data, zeros[:h.pad]...)
	if last {
		q.advance()
	} else {
		r.pkt++
	}
	q.transmit(port, p)
	if q.c.Service != UC {
		q.sent()
	} else if last {
		r.acked = w.last()
		q.complete()
	}
}

// dataOp returns the operation of a packet, by its position in the message.
func dataOp(w *sendWQE, first, last bool) uint8 {
	var op uint8
	switch {
	case first && last:
		op = opSendOnly
	case first:
		op = opSendFirst
	case last:
		op = opSendLast
	default:
		op = opSendMiddle
	}
	if w.extra == extraInv && last {
		if first {
			return opSendOnlyInv
		}
		return opSendLastInv
	}
	if w.extra == extraImm && last {
		op++
	}
	if w.act == actWrite {
		op += opWriteFirst - opSendFirst
	}
	return op
}

func appendRETH(b []byte, va uint64, rkey uint32, n int) []byte {
	b = binary.BigEndian.AppendUint64(b, va)
	b = binary.BigEndian.AppendUint32(b, rkey)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// sendRequest sends the request for an RDMA READ, or for the rest of one, or an atomic.
func (q *QP) sendRequest(w *sendWQE) {
	h := bth{psn: psnAdd(w.first, w.readNext), ackReq: true}
	switch {
	case w.act == actRead:
		h.op = opRead
	case w.op == wqeCS:
		h.op = opCompareSwap
	case w.op == wqeFA:
		h.op = opFetchAdd
	case w.op == wqeMaskedCS:
		h.op = opMaskedCS
	default:
		h.op = opMaskedFA
	}
	port, p := q.request(w, h)
	if w.act == actRead {
		off := w.readNext * q.mtu
		p.Data = appendRETH(p.Data, w.raddr+uint64(off), w.rkey, w.length-off)
	} else {
		p.Data = binary.BigEndian.AppendUint64(p.Data, w.raddr)
		p.Data = binary.BigEndian.AppendUint32(p.Data, w.rkey)
		n := 2
		if h.op >= opMaskedCS {
			p.Data = binary.BigEndian.AppendUint32(p.Data, uint32(w.atomSize))
			n = 4
		}
		for _, v := range w.atomic[:n] {
			p.Data = binary.BigEndian.AppendUint64(p.Data, v)
		}
	}
	q.req.reads++
	q.advance()
	q.transmit(port, p)
	q.sent()
}

// transmit passes a complete packet to the port.
func (q *QP) transmit(port *fabric.Port, p *fabric.Packet) {
	seal(p)
	if q.e.c.GRHRequired && !p.HasGRH && !p.Ethernet || !q.injectPacket(p) {
		p.Free()
		return
	}
	q.e.send(port, p)
}

// localFault fails the WQE at the cursor because of a memory fault, unless the driver can
// resolve it.
func (q *QP) localFault(w *sendWQE, f mkey.Fault) {
	if q.sendFault(w, faultSend, f) {
		return
	}
	q.counters().ReqLocalProtection++
	w.fail(cq.SyndromeLocalProt, vendorKey+uint8(f))
	q.complete()
}
