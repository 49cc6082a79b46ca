package verbs

import (
	"sync/atomic"
	"unsafe"
)

// tracing is how a tracer of this program (cmd/ibvtrace) asks to be told of posts and
// polls, which it can see nowhere else: it finds magic in the program's memory and
// sets on. When it is off, a post costs one load more.
var tracing = struct {
	magic [16]byte
	on    uint32
	_     uint32
	empty uint64 // polls that found nothing while it was on
}{magic: [16]byte{'g', 'o', 'v', 'e', 'r', 'b', 's', ' ', 't', 'r', 'a', 'c', 'i', 'n', 'g', 1}} // in the file, not made at run time

// A tracePoint is what a tracer is told of.
type tracePoint uint32

const (
	tracePostSend tracePoint = iota + 1
	tracePostRecv
	tracePostSRQRecv
	tracePoll
	traceBuilt
	traceArm
)

// The verbs while a tracer listens: apart, so that they cost the others nothing.

func (qp *QP) tracedSend(wrs []SendWR) (n int, err error) {
	n, err = qp.closeSend(wrs)
	tell(tracePostSend, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(wrs)), len(wrs), n, err)
	return n, err
}

func (qp *QP) tracedRecv(wrs []RecvWR) (n int, err error) {
	n, err = qp.closeRecv(wrs)
	tell(tracePostRecv, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(wrs)), len(wrs), n, err)
	return n, err
}

func (cq *CQ) tracedPoll(wc []WC) (int, error) {
	n, err := cq.poll(wc)
	cq.tellPoll(wc, n, err)
	return n, err
}

func (cq *CQ) tellPoll(wc []WC, n int, err error) {
	if n == 0 && err == nil {
		atomic.AddUint64(&tracing.empty, 1)
		return
	}
	tell(tracePoll, &cq.object, 0, 0, unsafe.Pointer(unsafe.SliceData(wc)), len(wc), n, err)
}
