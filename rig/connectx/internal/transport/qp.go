package transport

import (
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
)

// kind is the kind of object that a queue pair number names.
type kind uint8

const (
	kindQP kind = iota
	kindDCT
	kindConn // a DCI's connection to a DCT, without a number of its own
	kindSQ
	kindRQ
)

// QP is a queue pair, or an object with only a part of one.
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
	sqRung   uint16 // the end of the last WQE that a doorbell announced
	copied   []byte // a BlueFlame copy of a WQE, and the bytes after it
	sqBroken bool
	draining bool          // TypeSQDrained will be posted
	lost     bool          // a completion was lost, because of its CQ
	recheck  time.Duration // see pollReceives
	req      requester
	errored  map[uint16]bool // streams of a DCI in error

	srq  *srq
	rq   recvQueue
	resp responder
	est  bool // TypeCommEst was posted

	rendezvous []*rendezvous // in the order of their messages

	dct    *dct // of a DCT or of a connection
	raw    rawQueue
	faults []Fault
}

// special reports whether the object isn't a queue pair of the driver.
func (q *QP) special() bool { return q.kind != kindQP }

// setup computes from the context the values that don't change.
func (q *QP) setup() {
	c := &q.c
	if c.RQType == OwnRQ {
		q.rq = recvQueue{owner: "queue", number: q.number, buf: &c.Buffer, logSize: c.LogRQSize, stride: 16 << c.LogRQStride, dbr: c.DBRAddr, sig: c.WQSignature, pads: q.kind == kindRQ}
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

// sqProducer returns the driver's counter of send WQE blocks of 64 bytes.
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

// sqPosted returns how many blocks of the send queue can be fetched: up to its record and
// up to the last doorbell. The record may be ahead, if its doorbell has yet to come.
func (q *QP) sqPosted() uint16 {
	return min(q.sqProducer()-q.sqNext, q.sqRung-q.sqNext)
}

// reset implements 2RST: it discards everything without completions.
func (q *QP) reset() {
	q.c.State = Reset
	q.sqNext, q.sqRung, q.sqBroken, q.est, q.draining, q.lost = 0, 0, false, false, false, false
	q.copied = q.copied[:0]
	clear(q.errored)
	q.rq.reset()
	q.req.reset()
	q.resp.reset()
	q.rendezvous = nil
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

// receives reports whether packets are accepted.
func (q *QP) receives() bool {
	switch q.c.State {
	case RTR, RTS, SQD, SQEr:
		return true
	}
	return false
}

// counters returns the queue pair's set of counters.
func (q *QP) counters() *Counters { return q.e.Counters(q.c.CounterSet) }

// event posts an asynchronous event about the queue pair.
func (q *QP) event(typ uint8) {
	if q.kind == kindQP {
		q.e.c.Event(eq.QP(typ, eq.ResourceQP, q.number))
	}
}

// established posts TypeCommEst at the first packet to a queue pair that can't send yet.
func (q *QP) established() {
	if q.c.State == RTR && !q.est {
		q.est = true
		q.event(eq.TypeCommEst)
	}
}

// work does pending work of about n packets. It returns their number, and whether more can
// be done now.
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

// expired is called at the time that was given to wake.
func (q *QP) expired() {
	switch q.c.State {
	case Err:
		q.e.activate(q)
	case RTS, SQD:
		if q.kind == kindSQ {
			q.e.activate(q)
			return
		}
		q.req.expired(q)
	}
}
