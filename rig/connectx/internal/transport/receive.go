package transport

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
)

// Receive handles a packet from the fabric and frees it. Ports are numbered from 1. The
// caller must call Run afterwards.
func (e *Engine) Receive(port uint8, p *fabric.Packet) {
	defer p.Free()
	if p.Ethernet {
		e.receiveFrame(Frame{Port: port, Data: p.Data})
		return
	}
	if len(p.Data) < sizeBTH || !e.addressed(port, p) {
		return
	}
	h := parseBTH(p.Data)
	if h.qpn == groupQPN {
		e.receiveGroup(h, p)
		return
	}
	var q *QP
	if h.qpn < 2 {
		q = e.special[specialKey(port, h.qpn == 1)]
	} else {
		q = e.qps[h.qpn]
	}
	if q == nil || max(q.c.Primary.Port, 1) != port {
		return
	}
	if q.kind == kindDCT {
		e.receiveDCT(q, h, p)
		return
	}
	if q.kind != kindQP || q.class() != h.op&classMask {
		return
	}
	if q.c.Service != QP0 && q.c.Service != QP1 && !samePartition(h.pkey, e.pkey(port, q.c.Primary.PKeyIndex)) {
		return
	}
	if q.datagram() {
		q.receiveDatagram(h, p)
		return
	}
	if q.c.Service != DCI && !q.fromPeer(p) {
		return
	}
	if isAnswer(h.op & opMask) {
		if q.c.Service != UC {
			q.answer(h, p.Data[sizeBTH:])
		}
		return
	}
	if q.c.Service == DCI {
		return
	}
	a := arrival{h: h, p: p, r: reader{b: p.Data[sizeBTH:]}}
	q.serve(&a)
}

// isAnswer reports whether an operation is for the requester.
func isAnswer(op uint8) bool { return op >= opRespFirst && op <= opAtomicAck }

// receiveGroup delivers a datagram to the members of a group.
func (e *Engine) receiveGroup(h bth, p *fabric.Packet) {
	if !p.HasGRH || h.op&classMask != classUD {
		return
	}
	for _, q := range e.groups[p.DGID()] {
		if q.c.BlockLBMC && e.mine(p) || !samePartition(h.pkey, e.pkey(q.c.Primary.Port, q.c.Primary.PKeyIndex)) {
			continue
		}
		q.receiveDatagram(h, p)
	}
}

// mine reports whether a packet is from one of the HCA's own ports.
func (e *Engine) mine(p *fabric.Packet) bool {
	for i, port := range e.c.Ports {
		if !p.RoCE && port.LID() == p.SLID {
			return true
		}
		if p.RoCE && slices.ContainsFunc(e.addresses[i], func(a Address) bool { return a.MAC == p.Link.Source }) {
			return true
		}
	}
	return false
}
