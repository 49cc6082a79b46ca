package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

// responder is the receiving half of a queue pair.
type responder struct {
	psn   uint32 // expected
	msn   uint32
	nak   bool   // a NAK was sent for psn, so later packets are dropped silently
	act   action // of the current message; actLocal: none
	skip  bool   // UC: the rest of the message is dropped
	wqe   recvWQE
	xsrq  *srq // XRC: the SRQ that the WQE is from
	match matched
	off   int // bytes of the message so far
	va    uint64
	rkey  uint32
	left  int // remaining bytes of an RDMA WRITE
	queue responses
	done  []atomicDone
	doneN int

	paging paging
}

// atomicDone is the result of an atomic, for a repeated request.
type atomicDone struct {
	psn   uint32
	value uint64
}

// remembered is how many results of atomics are kept, the maximum of outstanding ones.
const remembered = 128

func (x *responder) reset() {
	*x = responder{wqe: recvWQE{segs: x.wqe.segs[:0]}, queue: responses{items: x.queue.items[:0]}}
}

// arrival is a packet that is being handled.
type arrival struct {
	h    bth
	p    *fabric.Packet
	r    reader
	srq  *srq   // XRC: the SRQ that the packet names
	pd   uint32 // of keys
	data []byte
}

// serve handles a request of a connected service.
func (q *QP) serve(a *arrival) {
	x := &q.resp
	if !q.receives() {
		return
	}
	q.established()
	diff := psnDiff(a.h.psn, x.psn)
	if q.c.Service == UC {
		if diff != 0 {
			q.counters().OutOfSequence++
			x.act, x.off, x.skip = actLocal, 0, true
			x.psn = a.h.psn
		}
	} else if diff < 0 {
		q.counters().DuplicateRequest++
		q.again(a)
		return
	} else if diff > 0 {
		q.counters().OutOfSequence++
		if !x.nak {
			x.nak = true
			q.nak(nakSequence)
		}
		return
	}
	x.nak = false
	a.pd = q.c.PD
	if q.c.Service == XRC {
		if a.srq = q.e.inDomain(binary.BigEndian.Uint32(a.r.take(sizeXRCETH))&psnMask, q.c.XRCD); a.srq == nil {
			q.refuse(nakInvalidRequest)
			return
		}
		a.pd = a.srq.c.PD
	}
	switch op := a.h.op & opMask; {
	case op <= opSendOnlyImm || op == opSendLastInv || op == opSendOnlyInv:
		q.serveSend(a, op)
	case op <= opWriteOnlyImm:
		q.serveWrite(a, op)
	case q.c.Service == UC:
	case op == opRead:
		q.serveRead(a)
	case op == opCompareSwap || op == opFetchAdd || op == opMaskedCS || op == opMaskedFA:
		q.serveAtomic(a, op)
	default:
		q.refuse(nakInvalidRequest)
	}
}

// place returns the position of a SEND or WRITE packet in its message.
func place(op uint8) (first, last bool) {
	switch op {
	case opSendFirst, opWriteFirst:
		return true, false
	case opSendMiddle, opWriteMiddle:
		return false, false
	case opSendOnly, opSendOnlyImm, opSendOnlyInv, opWriteOnly, opWriteOnlyImm:
		return true, true
	}
	return false, true
}

// fits checks a packet's position in its message and its length. If a packet of a UC
// message is missing, the rest of the message is dropped.
func (q *QP) fits(a *arrival, act action, first, last bool) bool {
	x := &q.resp
	if q.c.Service == UC {
		if first {
			x.act, x.off, x.skip = actLocal, 0, false
		} else if x.skip || x.act != act {
			x.skip = true
			x.psn = psnAdd(x.psn, 1)
			return false
		}
	}
	good := x.act == act && !first || x.act == actLocal && first
	if a.r.bad || len(a.r.b) < a.h.pad {
		good = false
	} else {
		a.data = a.r.b[:len(a.r.b)-a.h.pad]
		if n := len(a.data); n > q.mtu || !last && n != q.mtu || last && !first && n == 0 {
			good = false
		}
	}
	if !good {
		q.refuse(nakInvalidRequest)
	}
	return good
}

func (q *QP) serveSend(a *arrival, op uint8) {
	x := &q.resp
	first, last := place(op)
	var word uint32
	kind := cq.ResponderSend
	switch op {
	case opSendLastImm, opSendOnlyImm:
		kind, word = cq.ResponderSendImm, binary.BigEndian.Uint32(a.r.take(sizeImm))
	case opSendLastInv, opSendOnlyInv:
		kind, word = cq.ResponderSendInv, binary.BigEndian.Uint32(a.r.take(sizeImm))
	}
	if !q.fits(a, actSend, first, last) {
		return
	}
	tags := q.srq != nil && q.srq.c.TM
	if tags && first {
		if !q.match(a) {
			return
		}
	} else if first && !q.need(a) {
		return
	}
	if first {
		x.off = 0
	}
	if tags && x.match.rndv != nil {
		if last {
			q.startRendezvous(a)
		}
		x.act = actSend
		q.accept(a, last)
		return
	}
	if x.off+len(a.data) > x.wqe.length {
		q.counters().RespLocalLength++
		q.breakDown(cq.SyndromeLocalLength, vendorLength, nakInvalidRequest)
		return
	}
	var inline []byte
	if first && last && !tags && len(a.data) > 0 && len(a.data) <= inlineRoom(q.c.CSRes) {
		inline = a.data
	} else if f := q.e.scatter(x.wqe.segs, x.off, a.data, a.pd, q.localKey(a)); f != mkey.FaultNone {
		if q.receiveFault(f) {
			q.postpone()
			return
		}
		q.counters().RespLocalProtection++
		q.breakDown(cq.SyndromeLocalProt, vendorKey+uint8(f), nakRemoteOperation)
		return
	}
	x.off += len(a.data)
	x.act = actSend
	if kind == cq.ResponderSendInv && !q.mutates(mutant.InvalidateNot) {
		if f := q.e.c.Keys.Invalidate(word, a.pd, q.number); f != mkey.FaultNone {
			q.counters().RespRemoteAccess++
			q.breakDown(cq.SyndromeLocalAccess, vendorKey+uint8(f), nakRemoteAccess)
			return
		}
	}
	if last {
		q.received(a, kind, word, inline)
	}
	q.accept(a, last)
}

// localKey reports whether the WQE may use the reserved lkey.
func (q *QP) localKey(a *arrival) bool {
	if a.srq != nil {
		return a.srq.c.RLKey
	}
	return q.c.RLKey || q.srq != nil && q.srq.c.RLKey
}

func (q *QP) serveWrite(a *arrival, op uint8) {
	x := &q.resp
	first, last := place(op)
	var va uint64
	var rkey uint32
	var n int
	if first {
		h := a.r.take(sizeRETH)
		va, rkey, n = binary.BigEndian.Uint64(h), binary.BigEndian.Uint32(h[8:]), int(binary.BigEndian.Uint32(h[12:]))
	}
	imm := op == opWriteLastImm || op == opWriteOnlyImm
	var word uint32
	if imm {
		word = binary.BigEndian.Uint32(a.r.take(sizeImm))
	}
	if !q.fits(a, actWrite, first, last) {
		return
	}
	if first {
		q.counters().RxWriteRequests++
		if !q.c.RWE && !q.mutates(mutant.QPRights) || n > 1<<31 {
			q.refuse(nakInvalidRequest)
			return
		}
		if n > 0 && !q.open(a, rkey, va, n, mkey.RemoteWrite) {
			return
		}
		x.va, x.rkey, x.left, x.off = va, rkey, n, 0
	}
	if len(a.data) > x.left || last && len(a.data) != x.left {
		q.refuse(nakInvalidRequest)
		return
	}
	if imm && !q.need(a) {
		return
	}
	if len(a.data) > 0 {
		if !q.open(a, x.rkey, x.va, len(a.data), mkey.RemoteWrite) {
			return
		}
		data := a.data
		if q.mutates(mutant.LastUnwritten) && last && !first {
			data = data[:len(data)-1]
		}
		for _, p := range q.e.pieces {
			data = data[copy(p, data):]
		}
	}
	x.act = actWrite
	x.va += uint64(len(a.data))
	x.left -= len(a.data)
	x.off += len(a.data)
	if last && imm {
		q.received(a, cq.ResponderWriteImm, word, nil)
	}
	q.accept(a, last)
}

// open resolves memory that the peer accesses, into Engine.pieces.
func (q *QP) open(a *arrival, rkey uint32, va uint64, n int, right mkey.Access) bool {
	var f mkey.Fault
	q.e.pieces, f = q.e.c.Keys.Resolve(q.e.pieces[:0], rkey, a.pd, q.number, va, n, right)
	if f == mkey.FaultNone {
		return true
	}
	if q.remoteFault(f, right, rkey, va, n) {
		q.postpone()
		return false
	}
	q.counters().RespRemoteAccess++
	q.refuse(nakRemoteAccess)
	return false
}

func (q *QP) serveRead(a *arrival) {
	x := &q.resp
	h := a.r.take(sizeRETH)
	va, rkey, n := binary.BigEndian.Uint64(h), binary.BigEndian.Uint32(h[8:]), int(binary.BigEndian.Uint32(h[12:]))
	q.counters().RxReadRequests++
	if a.r.bad || len(a.r.b) > 0 || x.act != actLocal || !q.c.RRE || n > 1<<31 || x.queue.full(q.c.LogRRAMax) {
		q.refuse(nakInvalidRequest)
		return
	}
	if n > 0 && !q.open(a, rkey, va, n, mkey.RemoteRead) {
		return
	}
	x.msn++
	x.queue.push(response{what: respRead, psn: x.psn, msn: x.msn, va: va, rkey: rkey, pd: a.pd, length: n})
	x.psn = psnAdd(x.psn, max(1, (n+q.mtu-1)/q.mtu))
	q.e.activate(q)
}

// need consumes a receive WQE, unless an incomplete message left one.
func (q *QP) need(a *arrival) bool {
	if q.resp.wqe.used {
		return true
	}
	from := q.srq
	if a.srq != nil {
		from, q.resp.xsrq = a.srq, a.srq
	}
	if q.takeWQE(from) {
		return !q.injectReceive()
	}
	q.counters().OutOfBuffer++
	q.postpone()
	return false
}

// takeWQE consumes a receive WQE from an SRQ, or from the queue pair's own queue if s is
// nil.
func (q *QP) takeWQE(s *srq) (ok bool) {
	rq, srqn := &q.rq, uint32(0)
	if s != nil {
		rq, srqn = &s.rq, s.number
		ok = s.take(&q.resp.wqe)
	} else {
		ok = q.takeOwn()
	}
	if ok && q.e.c.Log != nil {
		q.e.c.Log.Receive(q.number, srqn, q.resp.wqe.index, q.e.wqe[:rq.stride])
	}
	return ok
}

// takeOwn consumes a WQE from the queue pair's own receive queue.
func (q *QP) takeOwn() bool {
	was := q.rq.bad
	ok := q.rq.take(q.e, &q.resp.wqe)
	if q.rq.bad && !was {
		q.event(eq.TypeQPFatal)
	}
	return ok
}

// accept advances to the next packet.
func (q *QP) accept(a *arrival, last bool) {
	x := &q.resp
	x.psn = psnAdd(x.psn, 1)
	if last {
		x.act = actLocal
		x.msn = (x.msn + 1) & psnMask
	}
	if q.c.Service != UC && a.h.ackReq {
		x.queue.ack(psnAdd(x.psn, -1), x.msn)
		q.e.activate(q)
	}
}

// received completes a receive WQE.
func (q *QP) received(a *arrival, kind cq.Kind, word uint32, inline []byte) {
	x := &q.resp
	c := cq.Completion{
		Kind:       kind,
		QPN:        q.number,
		WQECounter: x.wqe.index,
		ByteCount:  uint32(x.off),
		Imm:        word,
		Solicited:  a.h.solicited,
		Inline:     inline,
	}
	if kind != cq.ResponderWriteImm {
		c.Match = x.match.Match
	}
	x.match = matched{}
	origin(&c, a.p)
	c.GRH = c.GRH && a.p.RoCE
	var cqn uint32
	cqn, c.UserIndex = q.recvTarget()
	x.wqe.used = false
	q.postTo(cqn, &c)
}

// recvTarget returns the CQ of receive completions, and their user index.
func (q *QP) recvTarget() (cqn, index uint32) {
	s := q.resp.xsrq
	if q.srq != nil && q.srq.c.TM {
		s = q.srq
	}
	if s != nil {
		if !q.e.indexed(s.c.UserIndex) {
			return s.c.CQN, s.number
		}
		return s.c.CQN, s.c.UserIndex
	}
	index = q.c.UserIndex
	if !q.e.indexed(index) {
		index = 0
		if q.srq != nil {
			index = q.srq.number
		}
	}
	return q.c.CQNRecv, index
}

func (q *QP) postRecvError(syndrome, vendor uint8) {
	x := &q.resp
	cqn, index := q.recvTarget()
	if x.match.tag {
		x.wqe.used = false
		q.cancelTag(x.match.Index)
		x.match = matched{}
		return
	}
	q.postTo(cqn, &cq.Completion{
		Kind:           cq.ResponderError,
		QPN:            q.number,
		UserIndex:      index,
		WQECounter:     x.wqe.index,
		Syndrome:       syndrome,
		VendorSyndrome: vendor,
	})
	x.wqe.used = false
}

// nak answers the expected packet with an error code, in order.
func (q *QP) nak(code uint8) {
	x := &q.resp
	x.queue.push(response{what: respAck, psn: x.psn, msn: x.msn, syndrome: code})
	q.e.activate(q)
}

// refuse refuses an invalid request of the peer. UC drops it.
func (q *QP) refuse(code uint8) {
	x := &q.resp
	if q.c.Service == UC {
		x.act, x.off, x.skip = actLocal, 0, true
		x.psn = psnAdd(x.psn, 1)
		return
	}
	event := uint8(eq.TypeQPAccess)
	if code == nakInvalidRequest {
		q.counters().RespRemoteInvalidRequest++
		event = eq.TypeQPRequest
	}
	q.respondAll()
	q.sendNow(response{what: respAck, psn: x.psn, msn: x.msn, syndrome: code})
	if q.kind == kindQP {
		q.event(event)
	}
	q.toErr()
}

// breakDown completes the receive WQE with a local error. A reliable peer gets a NAK with
// the code.
func (q *QP) breakDown(syndrome, vendor, code uint8) {
	x := &q.resp
	q.counters().RespCQEError++
	q.postRecvError(syndrome, vendor)
	if q.reliable() {
		q.respondAll()
		q.sendNow(response{what: respAck, psn: x.psn, msn: x.msn, syndrome: code})
	}
	q.toErr()
}
