package transport

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// rnrTimers has the delays of an RNR NAK's timer codes, in units of 10 µs.
var rnrTimers = [32]uint16{
	65536 - 1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

func rnrTime(code uint8) time.Duration {
	if code == 0 {
		return 655360 * time.Microsecond
	}
	return time.Duration(rnrTimers[code]) * 10 * time.Microsecond
}

// answer handles an acknowledgement or a response to a request.
func (q *QP) answer(h bth, b []byte) {
	if q.c.State != RTS && q.c.State != SQD {
		return
	}
	r := &q.req
	if psnDiff(h.psn, r.acked) <= 0 || psnDiff(h.psn, r.next) >= 0 {
		return // late, or from before a reset
	}
	p := reader{b: b}
	switch op := h.op & opMask; op {
	case opAck:
		a := binary.BigEndian.Uint32(p.take(sizeAETH))
		if !p.bad {
			q.acknowledge(h.psn, uint8(a>>24))
		}
	case opAtomicAck:
		p.take(sizeAETH)
		v := binary.BigEndian.Uint64(p.take(sizeResult))
		if !p.bad {
			q.atomicResult(h.psn, v)
		}
	case opRespFirst, opRespLast, opRespOnly:
		p.take(sizeAETH)
		fallthrough
	case opRespMiddle:
		if !p.bad && len(p.b) >= h.pad {
			q.readResponse(h.psn, op, p.b[:len(p.b)-h.pad])
		}
	}
}

// acknowledge handles an AETH, which is about everything up to psn.
func (q *QP) acknowledge(psn uint32, syndrome uint8) {
	r := &q.req
	good := psn // acknowledged, at least by implication
	if syndrome>>5 != 0 {
		good = psnAdd(psn, -1)
	}
	if !q.implies(good) || r.head == r.tail {
		return
	}
	switch {
	case syndrome>>5 == 0:
	case syndrome&^0x1f == aethRNR:
		q.notReady(psn, syndrome&0x1f)
	case syndrome == nakSequence:
		q.counters().PacketSeqErr++
		q.tryAgain(psn)
	case syndrome == nakInvalidRequest:
		q.counters().ReqRemoteInvalidRequest++
		q.failHead(cq.SyndromeRemoteInvalReq, vendorRequest)
	case syndrome == nakRemoteAccess:
		q.counters().ReqRemoteAccess++
		q.failHead(cq.SyndromeRemoteAccess, vendorAccess)
	case syndrome == nakRemoteOperation:
		q.counters().ReqRemoteOperation++
		q.failHead(cq.SyndromeRemoteOp, vendorOperation)
	default:
		q.counters().ReqBadResponse++
		q.failHead(cq.SyndromeBadResp, vendorResponse)
	}
}

// implies completes everything up to psn. It reports false if an earlier response is
// missing, which is then requested again.
func (q *QP) implies(psn uint32) bool {
	r := &q.req
	if psnDiff(psn, r.acked) <= 0 {
		return true
	}
	lost := false
	for i := r.head; i < r.tail; i++ { // also beyond the cursor, which may have gone back
		w := r.at(i)
		if w.act == actLocal || w.syndrome != 0 {
			continue
		}
		if psnDiff(w.first, psn) > 0 {
			break
		}
		if w.answered() && !w.done {
			lost = true
			psn = psnAdd(w.first, w.readNext-1)
			break
		}
	}
	if psnDiff(psn, r.acked) > 0 {
		r.acked = psn
		q.skip()
		q.progress()
		q.complete()
	}
	if lost && !r.implied && q.c.State != Err {
		r.implied = true
		q.counters().ImpliedNakSeqErr++
		q.tryAgain(psnAdd(psn, 1))
	}
	return !lost
}

// skip moves the cursor over WQEs that needn't be sent again.
func (q *QP) skip() {
	r := &q.req
	for r.cursor < r.tail {
		w := r.at(r.cursor)
		if w.act == actLocal && w.done && w.syndrome == 0 {
			q.advance()
			continue
		}
		if w.act == actLocal || w.syndrome != 0 || w.answered() || psnDiff(w.first, r.acked) > 0 {
			return
		}
		if psnDiff(w.last(), r.acked) > 0 {
			r.pkt = max(r.pkt, psnDiff(r.acked, w.first)+1)
			return
		}
		q.advance()
	}
}

// notReady waits for the time that the responder requests, and sends again.
func (q *QP) notReady(psn uint32, code uint8) {
	r := &q.req
	q.counters().RNRNakRetryErr++
	if r.rnrRetry == 0 {
		q.counters().ReqRNRRetriesExceeded++
		q.failHead(cq.SyndromeRNRExceeded, vendorRNR)
		return
	}
	if r.rnrRetry != foreverRNR {
		r.rnrRetry--
	}
	q.goBack(psn)
	r.rnr = true
	r.ackBy = 0
	q.wake(q.e.now + q.e.shortened(rnrTime(code)))
}

// awaited finds the read or atomic whose response is psn. The response also acknowledges
// everything before it.
func (q *QP) awaited(psn uint32, a action) *sendWQE {
	r := &q.req
	for i := r.head; i < r.cursor; i++ {
		w := r.at(i)
		if w.act == actLocal || psnDiff(psn, w.last()) > 0 {
			continue
		}
		if w.act != a || w.done || psnDiff(psn, w.first) < 0 {
			return nil
		}
		if !q.implies(psnAdd(w.first, w.readNext-1)) {
			return nil
		}
		return w
	}
	return nil
}

func (q *QP) atomicResult(psn uint32, v uint64) {
	w := q.awaited(psn, actAtomic)
	if w == nil {
		return
	}
	var b [8]byte
	switch {
	case q.e.c.AtomicBigEndian && w.atomSize == 8:
		binary.BigEndian.PutUint64(b[:], v)
	case q.e.c.AtomicBigEndian:
		binary.BigEndian.PutUint32(b[:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(b[:], v)
	}
	q.store(w, b[:w.atomSize])
}

func (q *QP) readResponse(psn uint32, op uint8, data []byte) {
	w := q.awaited(psn, actRead)
	if w == nil {
		return
	}
	switch i := psnDiff(psn, w.first); {
	case i < w.readNext:
		return
	case i > w.readNext:
		q.implies(psn)
		return
	}
	off := w.readNext * q.mtu
	last := w.readNext == w.packets-1
	if len(data) != min(q.mtu, w.length-off) || last != (op == opRespLast || op == opRespOnly) {
		q.counters().ReqBadResponse++
		q.failAt(w, cq.SyndromeBadResp, vendorResponse)
		return
	}
	q.store(w, data)
}

// store stores one packet of a response.
func (q *QP) store(w *sendWQE, data []byte) {
	r := &q.req
	w.inline = w.inline || w.readNext == 0 && w.signaled() && w.packets == 1 && w.length > 0 && w.length <= inlineRoom(q.c.CSReq)
	if w.inline {
		copy(w.response[:], data)
	} else {
		off := w.readNext * q.mtu
		for i := range w.segs {
			s := &w.segs[i]
			if off >= s.length {
				off -= s.length
				continue
			}
			n := min(len(data), s.length-off)
			if f := q.e.write(s.key, q.c.PD, q.c.RLKey, s.addr+uint64(off), data[:n]); f != mkey.FaultNone {
				if q.sendFault(w, faultFetch, f) {
					return
				}
				q.counters().ReqLocalProtection++
				q.failAt(w, cq.SyndromeLocalProt, vendorKey+uint8(f))
				return
			}
			data, off = data[n:], 0
			if len(data) == 0 {
				break
			}
		}
	}
	r.acked = psnAdd(w.first, w.readNext)
	w.readNext++
	if w.readNext == w.packets {
		w.done = true
		r.reads--
		q.e.activate(q)
	}
	q.progress()
	q.complete()
}

// inlineRoom returns how much payload a completion may carry, by cs_req or cs_res.
func inlineRoom(cs uint8) int {
	switch cs & 0xf {
	case 1:
		return 32
	case 2:
		return 64
	}
	return 0
}

// failAt fails a WQE after all earlier ones are complete.
func (q *QP) failAt(w *sendWQE, syndrome, vendor uint8) {
	w.fail(syndrome, vendor)
	q.complete()
}
