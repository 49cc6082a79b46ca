package transport

import (
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

const (
	// The HCA isn't notified of receive WQEs that are posted to a queue pair in
	// error. It polls for them, less and less often.
	recheckFirst = time.Millisecond
	recheckLast  = 64 * time.Millisecond
)

// completeError completes the WQE at head with its error, and stops the send queue, or its
// stream.
func (q *QP) completeError(w *sendWQE) {
	if q.errored[w.stream] {
		q.flushStream(w)
		return
	}
	q.counters().ReqCQEError++
	switch w.syndrome {
	case cq.SyndromeLocalLength:
		q.counters().ReqLocalLength++
	case cq.SyndromeLocalQPOp:
		q.counters().LocalOperation++
	}
	if w.fetches == nil {
		q.postSendError(w.index, w.op, w.syndrome, w.vendor)
	}
	q.sqNext = w.index + w.bbs
	q.req.drop()
	if q.failStream(w) {
		return
	}
	if q.mutates(mutant.ErrorStays) && w.syndrome == cq.SyndromeRemoteInvalReq {
		q.e.activate(q)
		return
	}
	if q.c.Service == UC || q.datagram() {
		q.c.State = SQEr
		q.wake(0)
		q.e.activate(q)
		return
	}
	q.enterErr()
}

func (q *QP) postSendError(index uint16, op, syndrome, vendor uint8) {
	q.postTo(q.c.CQNSend, &cq.Completion{
		Kind:           cq.RequesterError,
		QPN:            q.number,
		UserIndex:      q.userIndex(),
		WQEOpcode:      op,
		WQECounter:     index,
		Syndrome:       syndrome,
		VendorSyndrome: vendor,
	})
}

// drop discards the WQEs in execution.
func (r *requester) drop() {
	r.head, r.cursor, r.pkt = r.tail, r.tail, 0
	r.reads, r.rnr, r.implied, r.ackBy = 0, false, false, 0
}

// toErr implements 2ERR.
func (q *QP) toErr() {
	if q.c.State == Err {
		return
	}
	if r := &q.req; r.head != r.tail {
		q.sqNext = r.at(r.head).index
		r.drop()
	}
	q.enterErr()
}

// enterErr begins to flush.
func (q *QP) enterErr() {
	q.c.State = Err
	q.recheck = recheckFirst
	q.wake(0)
	q.cancelRendezvous()
	x := &q.resp
	x.queue.clear()
	if x.wqe.used {
		q.counters().RespCQEFlush++
		q.postRecvError(cq.SyndromeFlush, vendorFlush)
	}
	q.e.activate(q)
	if q.srq != nil && q.kind == kindQP {
		q.event(eq.TypeLastWQE)
	}
}

// flush completes about n WQEs of a queue pair in error.
func (q *QP) flush(n int) (done int, more bool) {
	if q.kind == kindConn {
		return 0, false
	}
	done, more = q.flushSends(n)
	if more {
		return done, true
	}
	for q.rq.buf != nil && !(q.mutates(mutant.FlushOne) && q.rq.available(q.e) == 1) && q.takeOwn() {
		if q.kind == kindRQ || q.kind == kindQP {
			q.counters().RespCQEFlush++
			q.postRecvError(cq.SyndromeFlush, vendorFlush)
		}
		q.recheck = recheckFirst
		if done++; done >= n {
			return done, true
		}
	}
	if q.rq.buf != nil && !q.rq.bad {
		q.wake(q.e.now + q.recheck)
		q.recheck = min(2*q.recheck, recheckLast)
	}
	return done, false
}

// flushSends completes about n WQEs of a send queue in error.
func (q *QP) flushSends(n int) (done int, more bool) {
	if q.c.NoSQ || q.sqBroken {
		return 0, false
	}
	for ; done < n; done++ {
		posted := q.sqProducer() - q.sqNext
		mask := uint16(1)<<q.c.LogSQSize - 1
		if posted == 0 || q.c.LogSQSize < 16 && posted > mask+1 {
			return done, false
		}
		ctrl := q.e.wqe[:16]
		if !readRing(q.e, &q.c.Buffer, q.sqOffset+uint64(q.sqNext&mask)*64, ctrl) {
			q.sqBroken = true
			return done, false
		}
		q.counters().ReqCQEFlush++
		q.postSendError(q.sqNext, ctrl[3], cq.SyndromeFlush, vendorFlush)
		bbs := uint16(max(1, (int(ctrl[7]&0x3f)+3)/4))
		q.sqNext += min(bbs, posted)
		if q.sqRung-q.sqNext > mask+1 {
			q.sqRung = q.sqNext
		}
	}
	return done, true
}

// drained ends the draining of a send queue when all begun WQEs are complete.
func (q *QP) drained() {
	if q.draining && q.req.head == q.req.tail {
		q.draining = false
		q.event(eq.TypeSQDrained)
	}
}

// lose moves a queue pair to error when its completions can't be written.
func (q *QP) lose() {
	q.lost = false
	if q.c.State != Err {
		q.event(eq.TypeQPFatal)
		q.toErr()
	}
}
