package transport

import "github.com/goverbs/goverbs/rig/connectx/internal/cq"

// A DCI's WQEs name streams. An error of their memory, of the target or of the way to it is one
// of the stream: from then on, only this stream's WQEs are flushed, until it is reset, or until
// too many streams are in error. Which errors these are is not published. rdma-core's tests
// expect it of a key of another PD. Here, what is wrong with the WQE itself is the queue
// pair's error, as ever.
//
// Hardware executes streams side by side. This model executes all WQEs in their order, which
// is one of the orders that are allowed.

// failStream makes the failed WQE's stream the only one in error, if that is possible. The
// send queue goes on with the next WQE, on a new connection: WQEs that were begun, but are not
// complete, are fetched again.
func (q *QP) failStream(w *sendWQE) bool {
	if q.c.Service != DCI {
		return false
	}
	switch w.syndrome {
	case cq.SyndromeLocalProt, cq.SyndromeRemoteInvalReq, cq.SyndromeRemoteAccess, cq.SyndromeRemoteOp, cq.SyndromeRetryExceeded, cq.SyndromeRNRExceeded:
	default:
		return false
	}
	if q.errored == nil {
		q.errored = make(map[uint16]bool)
	}
	q.errored[w.stream] = true
	if len(q.errored) >= 1<<q.c.LogErroredStreams {
		return false
	}
	r := &q.req
	r.connected = false
	r.start(r.next)
	r.retry, r.rnrRetry = q.c.RetryCount, q.c.RNRRetry
	q.wake(0)
	q.drained()
	q.e.activate(q)
	return true
}

// flushStream completes the WQE at head, whose stream is in error, and goes on.
func (q *QP) flushStream(w *sendWQE) {
	q.counters().ReqCQEFlush++
	q.postSendError(w.index, w.op, cq.SyndromeFlush, vendorFlush)
	r := &q.req
	r.head++
	r.cursor, r.pkt = max(r.cursor, r.head), 0
	q.restartTimer()
	q.drained()
	q.e.activate(q)
}

// ResetStream ends the error of a DCI's stream. Without one, it fails: rdma-core's tests expect that.
func (e *Engine) ResetStream(qpn uint32, stream uint16) error {
	q := e.qps[qpn]
	switch {
	case q == nil || q.special():
		return ErrNoRes
	case q.c.Service != DCI:
		return ErrBadParam
	case q.c.State != RTS || !q.errored[stream]:
		return ErrBadState
	}
	delete(q.errored, stream)
	return nil
}
