package verbs

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/tracing"
)

// These functions run the verbs while a tracer listens (see package tracing). They are
// separate, so that tracing costs the untraced verbs nothing.

func (qp *QP) tracedSend(wrs []SendWR) (n int, err error) {
	n, err = qp.postSendSlow(wrs)
	report(tracing.PostSend, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(wrs)), len(wrs), n, err)
	return n, err
}

func (qp *QP) tracedRecv(wrs []RecvWR) (n int, err error) {
	n, err = qp.postRecvSlow(wrs)
	report(tracing.PostRecv, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(wrs)), len(wrs), n, err)
	return n, err
}

func (cq *CQ) tracedPoll(wc []WC) (int, error) {
	n, err := cq.poll(wc)
	cq.reportPoll(wc, n, err)
	return n, err
}

func (cq *CQ) reportPoll(wc []WC, n int, err error) {
	if n == 0 && err == nil {
		atomic.AddUint64(&tracing.Switch.Empty, 1)
		return
	}
	report(tracing.Poll, &cq.object, 0, 0, unsafe.Pointer(unsafe.SliceData(wc)), len(wc), n, err)
}

// reportPollEx is like reportPoll, for longer completions, which a tracer doesn't know.
func (cq *CQ) reportPollEx(wc []WCEx, n int, err error) {
	var plain []WC
	if n > 0 || err != nil {
		plain = make([]WC, len(wc))
	}
	for i := range n {
		plain[i] = wc[i].WC
	}
	cq.reportPoll(plain, n, err)
}

// report reports a call on an object to the tracer, with count elements at list, of which n
// were posted or polled.
//
//go:noinline
func report(point tracing.Point, o *object, number, kind uint32, list unsafe.Pointer, count, n int, err error) {
	tracing.Report(tracing.Call{
		Point: point, FD: uint32(o.dev.file.FD()), Handle: o.handle, Number: number, Kind: kind,
		Count: uint32(count), N: uint32(n), Failed: err != nil, Full: errors.Is(err, ErrQueueFull),
	}, list)
}
