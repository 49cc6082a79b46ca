package transport

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// Kinds of page faults, MLX5_WQE_PF_TYPE_* and MLX5_PFAULT_*.
const (
	faultShared  = 0 // the receive WQE of an SRQ
	faultSend    = 1 // the source of a SEND, WRITE or datagram
	faultReceive = 2 // a WQE of the queue pair's own receive queue
	faultFetch   = 3 // the local buffer of a READ or an atomic
	faultRead    = 4 // memory that the peer reads
	faultWrite   = 6 // memory that the peer writes

	faultRequester = 1 // a bit of those above
)

// paging is the page fault state of one half of a queue pair.
type paging struct {
	waits  bool
	denied bool // the driver could not resolve it, so the next fault is an error
}

// fault reports a page fault to the driver, once. It reports false if nothing will resolve
// it.
func (p *paging) fault(q *QP, e eq.Event) bool {
	if p.denied || q.kind != kindQP {
		return false
	}
	if !p.waits {
		p.waits = q.e.c.PageFault != nil && q.e.c.PageFault(e)
	}
	return p.waits
}

// sendFault reports whether a WQE with a memory fault has to wait for the driver.
func (q *QP) sendFault(w *sendWQE, kind uint8, f mkey.Fault) bool {
	return f == mkey.FaultPage && q.req.paging.fault(q, eq.PageFaultAt(kind, q.number, w.index, q.number))
}

// receiveFault is the same for a receive WQE. The packet for it is sent again or lost.
func (q *QP) receiveFault(f mkey.Fault) bool {
	if f != mkey.FaultPage {
		return false
	}
	x := &q.resp
	e := eq.PageFaultAt(faultReceive, q.number, x.wqe.index, q.number)
	switch {
	case x.xsrq != nil:
		e = eq.PageFaultAt(faultShared, x.xsrq.number, x.wqe.index, q.number)
	case q.srq != nil:
		e = eq.PageFaultAt(faultShared, q.srq.number, x.wqe.index, q.number)
	}
	return x.paging.fault(q, e)
}

// remoteFault is the same for memory that the peer accesses.
func (q *QP) remoteFault(f mkey.Fault, right mkey.Access, rkey uint32, va uint64, n int) bool {
	if f != mkey.FaultPage {
		return false
	}
	kind := uint8(faultWrite)
	if right == mkey.RemoteRead {
		kind = faultRead
	}
	return q.resp.paging.fault(q, eq.PageFaultIn(kind, rkey, va, uint16(min(n, q.mtu)), uint32(n), q.number))
}

// postpone makes the peer send the expected packet again later.
func (q *QP) postpone() {
	x := &q.resp
	if q.c.Service == UC {
		x.skip = true
		x.psn = psnAdd(x.psn, 1)
		return
	}
	x.nak = true
	x.queue.push(response{what: respAck, psn: x.psn, msn: x.msn, syndrome: aethRNR | q.c.MinRNRNak&0x1f})
	q.e.activate(q)
}

// Resume implements PAGE_FAULT_RESUME: the driver has resolved a page fault, or failed to.
func (e *Engine) Resume(token uint32, kind uint8, failed bool) error {
	q := e.qps[token]
	if q == nil || q.kind != kindQP {
		return ErrNoRes
	}
	p := &q.resp.paging
	if kind&faultRequester != 0 {
		p = &q.req.paging
	}
	if !p.waits {
		return nil // it was reset meanwhile
	}
	*p = paging{denied: failed}
	if kind == faultFetch && !failed && (q.c.State == RTS || q.c.State == SQD) {
		q.goBack(psnAdd(q.req.acked, 1)) // for the response that was dropped
	} else if kind == faultFetch && failed {
		q.failHead(cq.SyndromeLocalProt, vendorKey+uint8(mkey.FaultPage))
	}
	e.activate(q)
	return nil
}
