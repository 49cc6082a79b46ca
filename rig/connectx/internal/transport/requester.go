package transport

import (
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

const (
	inFlight    = 128 // WQEs begun but not complete
	window      = 256 // packets sent but not acknowledged
	ackEvery    = 32  // every such packet of a message requests an acknowledgement
	foreverRNR  = 7   // rnr_retry
	timeoutUnit = 4096 * time.Nanosecond
	timeoutLate = 4 // the factor by which the specification allows a timeout to be late
)

// requester is the sending half of a queue pair. WQEs from head to tail are begun. Those
// from head to cursor, and the first pkt packets of the cursor's, are sent and wait for
// their acknowledgement.
type requester struct {
	ring               []sendWQE
	head, cursor, tail uint64
	pkt                int
	next               uint32 // the sequence number for the next WQE
	acked              uint32 // everything up to this one is acknowledged
	ssn                uint32
	reads              int  // unfinished reads and atomics between head and cursor
	implied            bool // a lost response was detected, and nothing arrived since
	retry, rnrRetry    uint8
	rnr                bool          // waiting for the RNR timer
	ackBy              time.Duration // 0: no timer runs
	peer               destination   // of a DCI: its current target
	connected          bool
	paging             paging
}

func (r *requester) start(psn uint32) {
	r.next, r.acked = psn, psnAdd(psn, -1)
}

func (r *requester) reset() {
	ring := r.ring
	*r = requester{ring: ring}
	r.start(0)
}

func (r *requester) at(i uint64) *sendWQE { return &r.ring[i%inFlight] }

// send sends up to n packets. It returns how many, and whether more could be sent now.
func (q *QP) send(n int) (sent int, more bool) {
	r := &q.req
	if q.c.State != RTS && q.c.State != SQD {
		return 0, false
	}
	for sent < n {
		if r.rnr || r.paging.waits || q.pauses() {
			return sent, false
		}
		if r.cursor == r.tail && !q.begin() {
			return sent, false
		}
		if !q.allowed() || q.kind == kindSQ && q.paced() {
			return sent, false
		}
		w := r.at(r.cursor)
		switch {
		case w.syndrome != 0:
			// Earlier WQEs have to complete first.
			q.complete()
			return sent, false
		case w.act == actLocal:
			if !w.local {
				q.execute(w)
				w.local, w.done = true, true
			}
			q.advance()
			q.complete()
			sent++
		default:
			q.sendPacket(w)
			sent++
		}
		if q.c.State != RTS && q.c.State != SQD {
			return sent, q.c.State == Err
		}
	}
	return sent, true
}

// begin fetches the next WQE from the ring.
func (q *QP) begin() bool {
	r := &q.req
	if r.tail-r.head >= inFlight-1 || q.c.State == SQD {
		return false
	}
	if r.ring == nil {
		if q.sqPosted() == 0 && len(q.rendezvous) == 0 {
			return false
		}
		r.ring = make([]sendWQE, inFlight)
	}
	w := r.at(r.tail)
	if q.beginRendezvous(w) {
		return true
	}
	if !q.fetch(w) {
		return false
	}
	if q.c.Service == DCI && w.act != actLocal && w.syndrome == 0 {
		return q.beginDC(w)
	}
	q.enqueue(w)
	return true
}

// enqueue assigns a WQE its sequence numbers and its place.
func (q *QP) enqueue(w *sendWQE) {
	r := &q.req
	if w.act != actConnect && w.fetches == nil {
		if q.e.c.Log != nil {
			q.e.c.Log.Send(q.number, w.index, w.raw)
		}
		q.injectWQE(w)
	}
	w.first = r.next
	if w.act != actLocal && w.syndrome == 0 {
		r.next = psnAdd(r.next, w.packets)
		r.ssn = (r.ssn + 1) & psnMask
	} else {
		w.packets = 0
	}
	r.tail++
}

// allowed reports whether the WQE at the cursor may be sent now.
func (q *QP) allowed() bool {
	r := &q.req
	w := r.at(r.cursor)
	if r.pkt == 0 {
		switch w.flags & ctrlFenceMask {
		case fenceReads, fenceBothKind:
			if r.reads > 0 {
				return false
			}
		case fenceStrong:
			if r.cursor != r.head {
				return false
			}
		}
	}
	if w.answered() && r.reads >= 1<<q.c.LogSRAMax {
		return false
	}
	if q.reliable() && w.act != actLocal && w.syndrome == 0 && psnDiff(psnAdd(w.first, r.pkt), r.acked) > window {
		return false
	}
	return true
}

// advance moves the cursor to the next WQE.
func (q *QP) advance() {
	q.req.cursor++
	q.req.pkt = 0
}

// execute executes a local WQE.
func (q *QP) execute(w *sendWQE) {
	switch w.op {
	case wqeUMR:
		if len(w.raw) < 16+mkey.CtrlSize {
			w.fail(cq.SyndromeLocalQPOp, vendorSegment)
			return
		}
		u := mkey.UMR{Key: w.imm, Ctrl: w.raw[16 : 16+mkey.CtrlSize], Privileged: q.c.Service == RegUMR}
		rest := w.raw[16+mkey.CtrlSize:]
		if len(rest) >= mkey.ContextSize {
			u.Mkey, u.Rest = rest[:mkey.ContextSize], rest[mkey.ContextSize:]
		}
		if f := q.e.c.Keys.UMR(q.number, q.c.PD, u); f != mkey.FaultNone {
			q.counters().ReqMWBinding++
			w.fail(cq.SyndromeMWBind, vendorKey+uint8(f))
		}
	case wqeTags:
		q.changeTags(w)
	case wqeLocalInv:
		if f := q.e.c.Keys.Invalidate(w.imm, q.c.PD, q.number); f != mkey.FaultNone {
			q.counters().ReqMWBinding++
			w.fail(cq.SyndromeMWBind, vendorKey+uint8(f))
		}
	}
}

// sendPacket sends one packet of the WQE at the cursor.
func (q *QP) sendPacket(w *sendWQE) {
	switch {
	case q.c.Service == Raw:
		q.sendFrame(w)
	case q.datagram():
		q.sendDatagram(w)
	case w.answered():
		q.sendRequest(w)
	case w.act == actConnect:
		q.sendConnect(w)
	default:
		q.sendData(w)
	}
}

// sent starts the timer for the packet that a reliable queue pair has just sent.
func (q *QP) sent() {
	r := &q.req
	if r.ackBy == 0 {
		q.restartTimer()
	}
}

func (q *QP) restartTimer() {
	r := &q.req
	if r.rnr {
		return
	}
	waiting := r.head < r.cursor || r.head < r.tail && r.pkt > 0
	if t := q.c.Primary.AckTimeout & 0x1f; waiting && t != 0 {
		r.ackBy = q.e.now + q.e.shortened(timeoutLate*timeoutUnit<<t)
		q.wake(r.ackBy)
	} else {
		r.ackBy = 0
		q.wake(0)
	}
}

// expired is called when the RNR timer has expired, or when no response came in time.
func (r *requester) expired(q *QP) {
	if r.rnr {
		r.rnr = false
		q.restartTimer()
		q.e.activate(q)
		return
	}
	if r.ackBy == 0 || r.head == r.tail {
		return
	}
	r.ackBy = 0
	q.counters().LocalAckTimeout++
	q.tryAgain(psnAdd(r.acked, 1))
}

// tryAgain retransmits after a loss, unless the retries are exhausted.
func (q *QP) tryAgain(psn uint32) {
	r := &q.req
	if r.retry == 0 {
		q.counters().ReqTransportRetriesExceeded++
		q.failHead(cq.SyndromeRetryExceeded, vendorRetries)
		return
	}
	r.retry--
	q.goBack(psn)
}

// goBack retransmits from a sequence number on.
func (q *QP) goBack(psn uint32) {
	r := &q.req
	r.cursor, r.pkt, r.reads = r.head, 0, 0
	for ; r.cursor < r.tail; r.cursor++ {
		w := r.at(r.cursor)
		if w.act == actLocal && w.done && w.syndrome == 0 {
			continue
		}
		if w.act == actLocal || w.syndrome != 0 || w.answered() && !w.done {
			break
		}
		if psnDiff(psn, w.last()) <= 0 {
			if !w.answered() {
				r.pkt = max(0, psnDiff(psn, w.first))
			}
			break
		}
	}
	r.ackBy = 0
	q.restartTimer()
	q.e.activate(q)
}

// progress records that the responder responds.
func (q *QP) progress() {
	r := &q.req
	r.retry, r.rnrRetry = q.c.RetryCount, q.c.RNRRetry
	r.implied = false
	q.restartTimer()
	q.e.activate(q) // some WQE may have waited for this
}

// complete completes the finished WQEs from head on, in order.
func (q *QP) complete() {
	r := &q.req
	was := r.head
	for r.head < r.tail {
		w := r.at(r.head)
		if w.syndrome != 0 {
			q.completeError(w)
			return
		}
		if r.head >= r.cursor {
			break
		}
		if w.act == actLocal || w.answered() {
			if !w.done {
				break
			}
		} else if psnDiff(w.last(), r.acked) > 0 {
			break
		}
		if w.fetches != nil {
			q.fetched(w)
		} else if w.act != actConnect {
			q.post(w)
		}
		r.head++
	}
	if r.head != was {
		q.e.activate(q) // a fenced WQE may start now
	}
	if r.head == r.tail {
		r.ackBy = 0
		if !r.rnr {
			q.wake(0)
		}
	}
	q.drained()
}

// post writes the completion of a successful WQE if it is signaled.
func (q *QP) post(w *sendWQE) {
	if !w.signaled() {
		return
	}
	c := cq.Completion{
		Kind:       cq.Requester,
		QPN:        q.number,
		UserIndex:  q.userIndex(),
		WQEOpcode:  w.op,
		WQECounter: w.index,
		ByteCount:  uint32(w.length),
	}
	if w.inline {
		c.Inline = w.response[:w.length]
	}
	q.postTo(q.c.CQNSend, &c)
}

// userIndex returns the index by which the driver finds the queue pair, if it set one.
func (q *QP) userIndex() uint32 {
	if !q.e.indexed(q.c.UserIndex) {
		return 0
	}
	return q.c.UserIndex
}

// indexed reports whether completions use this user index.
func (e *Engine) indexed(index uint32) bool { return !e.c.Numbered && index != noUserIndex }

// noUserIndex means that completions have the queue's number instead.
const noUserIndex = 0xffffff

func (q *QP) postTo(cqn uint32, c *cq.Completion) {
	if to := q.e.c.CQ(cqn); to != nil {
		c.RealTime = q.c.RealTime
		for range q.mutateCompletion(c) {
			to.Post(c, q.e.now)
		}
		if q.c.State != Err && to.State().Status != cq.StatusOK {
			q.lost = true
			q.e.activate(q)
		}
	}
}

// failHead fails the oldest WQE in execution.
func (q *QP) failHead(syndrome, vendor uint8) {
	r := &q.req
	if r.head == r.tail {
		return
	}
	r.at(r.head).fail(syndrome, vendor)
	q.completeError(r.at(r.head))
}
