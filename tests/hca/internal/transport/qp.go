package transport

import (
	"time"

	"github.com/goverbs/goverbs/tests/hca/internal/eq"
)

// kind is what a number among those of queue pairs names.
type kind uint8

const (
	kindQP kind = iota
	kindDCT
	kindConn // a DCI's connection to a DCT, which has no number of its own
	kindSQ
	kindRQ
)

// QP is a queue pair, or something with only a part of one.
type QP struct {
	e        *Engine
	c        QPContext
	number   uint32
	kind     kind
	dead     bool
	active   bool
	deadline time.Duration // see wake
	timerAt  time.Duration
	mtu      int

	sqOffset uint64 // of the send queue in the buffer
	sqNext   uint16 // the WQE to fetch next
	sqRung   uint16 // where the WQE ends that a doorbell told of last
	copied   []byte // a WQE that came by BlueFlame, and what follows it
	sqBroken bool
	draining bool          // TypeSQDrained is owed
	lost     bool          // a completion was, with its CQ
	recheck  time.Duration // see pollReceives
	req      requester

	srq  *srq
	rq   recvQueue
	resp responder
	est  bool // TypeCommEst was posted

	dct    *dct // of a DCT or of a connection
	raw    rawQueue
	faults []Fault
}

// special reports whether the object is no queue pair of the driver's.
func (q *QP) special() bool { return q.kind != kindQP }

// setup derives from the context what does not change.
func (q *QP) setup() {
	c := &q.c
	if c.RQType == OwnRQ {
		q.rq = recvQueue{owner: "queue", number: q.number, buf: &c.Buffer, logSize: c.LogRQSize, stride: 16 << c.LogRQStride, dbr: c.DBRAddr, sig: c.WQSignature}
		q.sqOffset = uint64(q.rq.stride) << c.LogRQSize
	}
	q.req.start(0)
	q.setMTU()
}

func (q *QP) setMTU() {
	q.mtu = 256
	if q.c.MTU >= 1 && q.c.MTU <= 5 {
		q.mtu = 128 << q.c.MTU
	}
}

// sqProducer is the driver's counter of send WQEs, in 64 bytes.
func (q *QP) sqProducer() uint16 {
	if q.c.NoSQ {
		return q.sqNext
	}
	n, ok := q.e.counter(q.c.DBRAddr+4, "queue", q.number)
	if !ok {
		return q.sqNext
	}
	return n
}

// sqPosted is how many blocks of the send queue can be fetched: as far as its
// record says, and as far as doorbells told. The record alone may be further: its
// doorbell is still to come.
func (q *QP) sqPosted() uint16 {
	return min(q.sqProducer()-q.sqNext, q.sqRung-q.sqNext)
}

// reset is 2RST: all is forgotten, nothing completes.
func (q *QP) reset() {
	q.c.State = Reset
	q.sqNext, q.sqRung, q.sqBroken, q.est, q.draining, q.lost = 0, 0, false, false, false, false
	q.copied = q.copied[:0]
	q.rq.reset()
	q.req.reset()
	q.resp.reset()
	q.wake(0)
}

// reliable reports whether packets are acknowledged.
func (q *QP) reliable() bool {
	switch q.c.Service {
	case RC, XRC, DCI, DCT:
		return true
	}
	return false
}

// receives reports whether packets are taken.
func (q *QP) receives() bool {
	switch q.c.State {
	case RTR, RTS, SQD, SQEr:
		return true
	}
	return false
}

// counters are those of the queue pair's set.
func (q *QP) counters() *Counters { return q.e.Counters(q.c.CounterSet) }

// event posts an asynchronous event about the queue pair.
func (q *QP) event(typ uint8) {
	if q.kind == kindQP {
		q.e.c.Event(eq.QP(typ, eq.ResourceQP, q.number))
	}
}

// established tells of the first packet of a queue pair that cannot send yet.
func (q *QP) established() {
	if q.c.State == RTR && !q.est {
		q.est = true
		q.event(eq.TypeCommEst)
	}
}

// work does some of what is pending: about n packets. It reports how many
// there were, and whether there is more to do now.
func (q *QP) work(n int) (done int, more bool) {
	if q.lost {
		q.lose()
	}
	switch q.c.State {
	case Err:
		return q.flush(n)
	case Reset, Init:
		return 0, false
	}
	done, more = q.respond(n)
	if more {
		return done, true
	}
	var sent int
	if q.c.State == SQEr {
		sent, more = q.flushSends(n - done)
	} else {
		sent, more = q.send(n - done)
	}
	return done + sent, more
}

// expired is called when the time given to wake has come.
func (q *QP) expired() {
	switch q.c.State {
	case Err:
		q.e.activate(q)
	case RTS, SQD:
		q.req.expired(q)
	}
}
