package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

// Kinds of responses.
const (
	respAck = iota // or a NAK
	respRead
	respAtomic
)

// response is a response that waits to be sent, in the order of the requests.
type response struct {
	what     uint8
	syndrome uint8
	again    bool // to a repeated request
	psn, msn uint32
	va       uint64
	rkey, pd uint32
	length   int
	sent     int // packets of an RDMA READ's response
	value    uint64
}

// responses is a queue of them.
type responses struct {
	items []response
	head  int
	reads int // responses to reads and atomics, without repetitions
}

func (s *responses) empty() bool { return s.head == len(s.items) }

func (s *responses) clear() { *s = responses{items: s.items[:0]} }

func (s *responses) push(r response) {
	if s.counts(r) {
		s.reads++
	}
	s.items = append(s.items, r)
}

// counts reports whether a response uses one of the responder resources.
func (s *responses) counts(r response) bool { return r.what != respAck && !r.again }

// full reports whether the peer has its maximum of outstanding reads and atomics.
func (s *responses) full(log uint8) bool { return s.reads >= 1<<log }

// ack acknowledges psn. One acknowledgement is enough for many packets.
func (s *responses) ack(psn, msn uint32) {
	if n := len(s.items); n > s.head {
		if last := &s.items[n-1]; last.what == respAck && last.syndrome == aethAck {
			last.psn, last.msn = psn, msn
			return
		}
	}
	s.push(response{what: respAck, psn: psn, msn: msn, syndrome: aethAck})
}

func (s *responses) pop() {
	if s.counts(s.items[s.head]) {
		s.reads--
	}
	if s.head++; s.head == len(s.items) {
		s.items, s.head = s.items[:0], 0
	} else if s.head >= 64 && s.head*2 >= len(s.items) {
		s.items = s.items[:copy(s.items, s.items[s.head:])]
		s.head = 0
	}
}

// respond sends up to n packets of responses.
func (q *QP) respond(n int) (sent int, more bool) {
	s := &q.resp.queue
	for sent < n && !s.empty() {
		r := &s.items[s.head]
		if r.what != respRead {
			q.sendNow(*r)
			s.pop()
			sent++
			continue
		}
		done, ok := q.sendRead(r)
		if !ok {
			return sent, false
		}
		if done {
			s.pop()
		}
		sent++
	}
	return sent, !s.empty()
}

// respondAll sends the responses to earlier requests, because the refusal of a later one
// must not overtake them.
func (q *QP) respondAll() {
	for more := true; more; {
		_, more = q.respond(burst)
	}
}

// reply begins a response packet.
func (q *QP) reply(op uint8, psn uint32) (*fabric.Port, *fabric.Packet) {
	p := fabric.NewPacket()
	port := q.e.address(p, &q.c.Primary)
	p.Data = appendBTH(p.Data, bth{op: q.class() | op, pkey: q.e.pkey(q.c.Primary.Port, q.c.Primary.PKeyIndex), qpn: q.c.RemoteQPN, psn: psn})
	return port, p
}

func appendAETH(b []byte, syndrome uint8, msn uint32) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(syndrome)<<24|msn&psnMask)
}

// sendNow sends a response of one packet.
func (q *QP) sendNow(r response) {
	op := uint8(opAck)
	if r.what == respAtomic {
		op = opAtomicAck
	}
	port, p := q.reply(op, r.psn)
	syndrome := r.syndrome
	if r.what == respAtomic {
		syndrome = aethAck
	}
	p.Data = appendAETH(p.Data, syndrome, r.msn)
	if r.what == respAtomic {
		p.Data = binary.BigEndian.AppendUint64(p.Data, r.value)
	}
	q.transmit(port, p)
}

// sendRead sends one packet of a READ's response.
func (q *QP) sendRead(r *response) (done, ok bool) {
	packets := max(1, (r.length+q.mtu-1)/q.mtu)
	off := r.sent * q.mtu
	n := min(q.mtu, r.length-off)
	last := r.sent == packets-1
	op := uint8(opRespMiddle)
	switch {
	case packets == 1:
		op = opRespOnly
	case r.sent == 0:
		op = opRespFirst
	case last:
		op = opRespLast
	}
	port, p := q.reply(op, psnAdd(r.psn, r.sent))
	p.Data[1] |= byte(pad(n) << 4)
	if op != opRespMiddle {
		p.Data = appendAETH(p.Data, aethAck, r.msn)
	}
	if n > 0 {
		e := q.e
		var f mkey.Fault
		at := r.va + uint64(off)
		if q.mutates(mutant.PacketsSwap) && r.sent == 1 && packets > 3 {
			at += uint64(q.mtu)
		}
		e.pieces, f = e.c.Keys.Resolve(e.pieces[:0], r.rkey, r.pd, q.number, at, n, mkey.RemoteRead)
		if f != mkey.FaultNone {
			// The memory became inaccessible during the read.
			p.Free()
			if q.remoteFault(f, mkey.RemoteRead, r.rkey, r.va+uint64(off), r.length-off) {
				return false, false
			}
			if r.again {
				q.resp.queue.pop()
				return false, true
			}
			q.counters().RespRemoteAccess++
			x := &q.resp
			x.psn = psnAdd(r.psn, r.sent)
			x.queue.clear()
			q.refuse(nakRemoteAccess)
			return false, false
		}
		for _, b := range e.pieces {
			p.Data = append(p.Data, b...)
		}
	}
	p.Data = append(p.Data, zeros[:pad(n)]...)
	r.sent++
	q.transmit(port, p)
	return last, true
}

// again answers a repeated request.
func (q *QP) again(a *arrival) {
	x := &q.resp
	if q.c.Service == XRC {
		a.r.take(sizeXRCETH)
	}
	switch op := a.h.op & opMask; {
	case op == opRead:
		q.readAgain(a)
	case op == opCompareSwap || op == opFetchAdd || op == opMaskedCS || op == opMaskedFA:
		for i := range x.done {
			if d := &x.done[i]; d.psn == a.h.psn && len(x.queue.items)-x.queue.head < remembered {
				x.queue.push(response{what: respAtomic, again: true, psn: d.psn, msn: x.msn, value: d.value})
			}
		}
	case op == opConnect || op <= opWriteOnlyImm || op == opSendLastInv || op == opSendOnlyInv:
		// An acknowledgement must not overtake responses that wait to be
		// sent, so it goes to the queue's end.
		x.queue.ack(psnAdd(x.psn, -1), x.msn)
	}
	q.e.activate(q)
}

// readAgain repeats a response, or the rest of one.
func (q *QP) readAgain(a *arrival) {
	x := &q.resp
	h := a.r.take(sizeRETH)
	va, rkey, n := binary.BigEndian.Uint64(h), binary.BigEndian.Uint32(h[8:]), int(binary.BigEndian.Uint32(h[12:]))
	packets := max(1, (n+q.mtu-1)/q.mtu)
	if a.r.bad || n > 1<<31 || psnDiff(psnAdd(a.h.psn, packets-1), x.psn) >= 0 || q.rewind(a.h.psn, packets) ||
		len(x.queue.items)-x.queue.head >= remembered {
		return
	}
	pd := q.c.PD
	if q.c.Service == XRC {
		pd = q.xrcPD(a)
	}
	var f mkey.Fault
	if n > 0 {
		q.e.pieces, f = q.e.c.Keys.Resolve(q.e.pieces[:0], rkey, pd, q.number, va, n, mkey.RemoteRead)
	}
	if !q.c.RRE || f != mkey.FaultNone && f != mkey.FaultPage {
		return
	}
	x.queue.push(response{what: respRead, again: true, psn: a.h.psn, msn: x.msn, va: va, rkey: rkey, pd: pd, length: n})
}

// rewind answers a repeated request for the last packets of a response that is still being
// sent, by restarting that response. Sending the packets twice would double the work, and
// a long READ would never end on a wire that loses a packet of each response.
func (q *QP) rewind(psn uint32, packets int) bool {
	s := &q.resp.queue
	for i := s.head; i < len(s.items); i++ {
		r := &s.items[i]
		skipped := psnDiff(psn, r.psn)
		if r.what != respRead || skipped < 0 || skipped+packets != max(1, (r.length+q.mtu-1)/q.mtu) {
			continue
		}
		r.sent = min(r.sent, skipped)
		return true
	}
	return false
}

// xrcPD returns the PD of a packet's keys, which is its SRQ's.
func (q *QP) xrcPD(a *arrival) uint32 {
	if s := q.e.inDomain(binary.BigEndian.Uint32(a.p.Data[sizeBTH:])&psnMask, q.c.XRCD); s != nil {
		return s.c.PD
	}
	return psnMask
}
