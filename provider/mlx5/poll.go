package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A credit has the numbers of a QP's completed requests that a poll has yet to report to the
// QP's queues. The poll reports them once for many completions. The credit is part of the CQ
// and belongs to its last resource, because a pointer would cost write barriers.
type credit struct {
	sends, recvs         bool // there is something to report
	sendsDone, recvsDone uint32
}

// creditQueues reports the credit to the queues of the last resource.
func (q *cq) creditQueues() {
	if q.credit.sends {
		memorder.StoreRelease(&q.last.qp.sq.done, q.credit.sendsDone)
	}
	if q.credit.recvs {
		memorder.StoreRelease(&q.last.qp.rq.done, q.credit.recvsDone)
	}
	q.credit.sends, q.credit.recvs = false, false
}

// received counts a completed receive. Only goroutines that poll the CQ change the count.
func (q *cq) received(rq *recvQueue) {
	if c := &q.credit; c.recvs {
		c.recvsDone++
	} else {
		c.recvs, c.recvsDone = true, atomic.LoadUint32(&rq.done)+1
	}
}

// Poll first polls successful sends of the previous completion's queue pair: most
// completions are such sends. poll handles all completions.
func (q *cq) Poll(wc []provider.WC) (n int, err error) {
	i, e, lap := q.next, q.head(), q.lap
	tail := e.Load()
	if !tail.Ready(lap) || len(wc) == 0 {
		return 0, nil
	}
	if r := q.last; r != nil && q.v1 {
		s, done := &r.qp.sq, uint32(0)
		for seen := i; tail.PlainSend(lap); {
			if mmio.LoadsReorder && i == seen {
				seen = q.advanceSeen(i, len(wc)-n)
			}
			if e.UserIndex() != r.number {
				break
			}
			slot := s.slotOf(tail)
			if slot == nil {
				break
			}
			sent(&wc[n], e, slot)
			done = slot.posted
			n++
			i++
			e, lap = q.at(i), q.round(i)
			if n == len(wc) {
				break
			}
			tail = e.Load()
		}
		if n > 0 {
			q.next, q.offset, q.lap = i, q.offsetOf(e), lap
			memorder.StoreRelease(&s.done, done)
			q.publish()
		}
		if n == len(wc) {
			return n, nil
		}
	}
	m, err := q.poll(wc[n:], n > 0, false)
	return n + m, err
}

// advanceSeen returns the end of the CQEs that the device has written from index i on, up to n,
// with one barrier for all of them. The caller has seen the first.
func (q *cq) advanceSeen(i uint32, n int) uint32 {
	end := i + 1
	for ; int(end-i) < n && q.at(end).Load().Ready(q.round(end)); end++ {
	}
	mmio.FromDevice()
	return end
}

// slotOf returns the slot of the request that a CQE is about, or nil if there is none.
func (s *sendQueue) slotOf(tail wqe.Tail) *slot {
	at := tail.Counter() & s.mask
	if int(at) >= len(s.slots) {
		return nil
	}
	return &s.slots[at]
}

// publish publishes the consumer index: the CQEs before the next one are free.
func (q *cq) publish() {
	memorder.StoreRelease(&q.record[cqIndexRecord], swap32(q.next&0xffffff))
}

// sent fills in the completion of a successful send.
func sent(w *provider.WC, e *wqe.CQE, slot *slot) {
	op := e.SendOpcode()
	*w = provider.WC{WRID: slot.id, QPNum: e.QPN(), Opcode: uint32(sendResults[op])}
	if op >= wqe.OpRDMARead {
		special(w, e, op, slot)
	}
}

// special fills in the fields that only some sends have.
func special(w *provider.WC, e *wqe.CQE, op wqe.Opcode, slot *slot) {
	switch op {
	case wqe.OpUMR:
		w.Opcode = slot.opcode
	case wqe.OpRDMARead:
		w.ByteLen = e.ByteCount()
	case wqe.OpAtomicCS, wqe.OpAtomicFA, wqe.OpMaskedCS, wqe.OpMaskedFA:
		w.ByteLen = 8
	}
}

// An outcome is the result of handling a CQE.
type outcome uint8

const (
	reported outcome = iota // the CQE was reported as a work completion
	internal                // the provider handled the CQE itself
	ended                   // there was no CQE: the ring ends here
	unknownKind
	unknownQueue
	unknownRequest
	unexpandable
)

func (o outcome) why() string {
	switch o {
	case unknownQueue:
		return "is about a queue that this process doesn't have"
	case unknownRequest:
		return "is about a request that the queue doesn't have"
	case unexpandable:
		return "stands for more than the queue holds, or for none"
	}
	return "is of an unknown kind"
}

// poll polls the ring. With one, it handles at most one CQE, which the caller has seen. A CQE that
// can't be reported is an error, unless completions precede it, in this call or, with after, in the
// caller's. Then the CQE stays in the ring.
func (q *cq) poll(wc []provider.WC, after, one bool) (int, error) {
	var err error
	n, i := 0, q.next
	for seen := i; n < len(wc); {
		e := q.at(i)
		tail := e.Load()
		if !tail.Ready(q.round(i)) {
			break
		}
		if mmio.LoadsReorder && !one && i == seen {
			seen = q.advanceSeen(i, len(wc)-n)
		}
		i++
		if tail.Compressed() {
			tail = q.expandAt(i - 1)
		}
		o := q.other(i-1, e, tail, &wc[n])
		if o == reported {
			n++
			continue
		}
		if o == internal {
			if one {
				break
			}
			continue
		}
		if n > 0 || after || o == ended {
			i--
		}
		if n == 0 && !after {
			err = q.unreported(o, e)
		}
		break
	}
	if i == q.next {
		return 0, err
	}
	q.creditQueues()
	if !one {
		q.freed.publish()
	}
	q.seek(i)
	q.publish()
	return n, err
}

// unreported returns the error for a CQE that can't be reported. It is not inlined, to keep the
// code of successful polls small.
//
//go:noinline
func (q *cq) unreported(o outcome, e *wqe.CQE) error {
	if o == ended {
		return q.broken
	}
	return &provider.CQEError{Why: o.why(), CQE: *cqeBytes(e)}
}

// sendResults maps send opcodes to the opcodes of their completions.
var sendResults = [256]uapi.IbUverbsWcOpcode{
	wqe.OpRDMAWrite:    uapi.IB_UVERBS_WC_RDMA_WRITE,
	wqe.OpRDMAWriteImm: uapi.IB_UVERBS_WC_RDMA_WRITE,
	wqe.OpSend:         uapi.IB_UVERBS_WC_SEND,
	wqe.OpSendImm:      uapi.IB_UVERBS_WC_SEND,
	wqe.OpSendInval:    uapi.IB_UVERBS_WC_SEND,
	wqe.OpRDMARead:     uapi.IB_UVERBS_WC_RDMA_READ,
	wqe.OpAtomicCS:     uapi.IB_UVERBS_WC_COMP_SWAP,
	wqe.OpMaskedCS:     uapi.IB_UVERBS_WC_COMP_SWAP,
	wqe.OpAtomicFA:     uapi.IB_UVERBS_WC_FETCH_ADD,
	wqe.OpMaskedFA:     uapi.IB_UVERBS_WC_FETCH_ADD,
	wqe.OpTSO:          uapi.IB_UVERBS_WC_TSO,
}

// find returns the resource of a CQE, or nil if the QP is gone.
func (q *cq) find(e *wqe.CQE, requester bool) *resource {
	number := e.UserIndex()
	var r *resource
	switch {
	case q.v1:
		r = q.ctx.index.find(number)
	case !requester && number != 0:
		r = q.ctx.index.lookup(number | srqNumber)
	default:
		r = q.ctx.index.lookup(e.QPN())
	}
	if r == nil || r.qp == nil {
		if requester {
			return nil
		}
		return r // an XRC SRQ: not cached, because requesters must not find it
	}
	if r != q.last {
		q.creditQueues()
		q.last = r
	}
	return r
}

// expandAt expands the compressed completions that begin at an index, and returns the
// tail of the first.
func (q *cq) expandAt(i uint32) wqe.Tail {
	if !q.expand(i, q.format) {
		return wqe.Tail(wqe.CQEInvalid) << 28
	}
	return q.at(i).Load()
}

// other handles a CQE that Poll leaves to poll.
func (q *cq) other(i uint32, e *wqe.CQE, tail wqe.Tail, w *provider.WC) outcome {
	op := tail.Opcode()
	switch op {
	case wqe.CQERequester, wqe.CQEResponderWrite, wqe.CQEResponderSend, wqe.CQEResponderImm, wqe.CQEResponderInv,
		wqe.CQERequesterError, wqe.CQEResponderError:
	case wqe.CQENoPacket:
		if !e.AboutTags() {
			return unknownKind
		}
		r := q.find(e, false)
		if r == nil || r.srq == nil || r.srq.tags == nil {
			return unknownQueue
		}
		return r.srq.tagged(e, tail, w, &q.freed)
	case wqe.CQEInvalid:
		return unexpandable
	case wqe.CQEResize:
		if q.broken != nil {
			return ended
		}
		return unknownKind
	default:
		return unknownKind
	}
	requester := op == wqe.CQERequester || op == wqe.CQERequesterError
	r := q.last
	if number := e.UserIndex(); r == nil || r.number != number || !q.v1 {
		if r = q.find(e, requester); r == nil {
			return unknownQueue
		}
	}
	if requester {
		s := &r.qp.sq
		slot := s.slotOf(tail)
		if slot == nil {
			return unknownRequest
		}
		q.credit.sends, q.credit.sendsDone = true, slot.posted
		if op == wqe.CQERequesterError {
			*w = provider.WC{WRID: slot.id, QPNum: e.QPN()}
			fail(w, e)
			return reported
		}
		sent(w, e, slot)
		if !tail.Plain() {
			w.Status = uint32(r.qp.scatter(tail, e, q.inline(i, tail, int(w.ByteLen))))
		}
		return reported
	}
	*w = provider.WC{QPNum: e.QPN()}
	var segs []wqe.Segment
	if s := r.srq; s != nil {
		if s.tags != nil && op != wqe.CQEResponderError && e.AboutTags() {
			return s.tagged(e, tail, w, &q.freed)
		}
		at := tail.Counter()
		if int(at) >= len(s.ids) {
			return unknownRequest
		}
		if op == wqe.CQEResponderError && pageFault(e) {
			if !s.repost(at) {
				return unknownRequest
			}
			return internal
		}
		w.WRID = s.ids[at]
		segs = s.at(uint16(at))[1:]
		q.freed.add(s, at)
	} else {
		rq := &r.qp.rq
		at := tail.Counter() & rq.mask
		if int(at) >= len(rq.ids) {
			return unknownRequest
		}
		w.WRID = rq.ids[at]
		segs = rq.list(at)
		if rq.marks == nil {
			q.received(rq)
		} else {
			rq.complete(at)
		}
	}
	if op == wqe.CQEResponderError {
		fail(w, e)
		return reported
	}
	w.ByteLen = e.ByteCount()
	if !tail.Plain() {
		if w.Status = uint32(r.qp.spread(segs, q.inline(i, tail, int(w.ByteLen)))); w.Status != uint32(uapi.IB_WC_SUCCESS) {
			return reported
		}
	}
	w.Opcode = uint32(uapi.IB_WC_RECV)
	switch op {
	case wqe.CQEResponderWrite:
		w.Opcode = uint32(uapi.IB_WC_RECV_RDMA_WITH_IMM)
		fallthrough
	case wqe.CQEResponderImm:
		w.Flags, w.Ex = uint32(uapi.IB_WC_WITH_IMM), e.Imm()
	case wqe.CQEResponderInv:
		w.Flags, w.Ex = uint32(uapi.IB_WC_WITH_INVALIDATE), e.Key()
	}
	if r.qp != nil && r.qp.raw {
		w.QPNum = r.qp.number // the CQE has the flow tag in place of the number
		if e.ChecksumOK() {
			w.Flags |= uint32(uapi.IB_WC_IP_CSUM_OK)
		}
	}
	var grh bool
	w.SrcQP, w.SL, grh = e.Source()
	if grh {
		w.Flags |= uint32(uapi.IB_WC_GRH)
	}
	w.SLID, w.DLIDPathBits, w.PKeyIndex = e.SLID(), e.PathBits(), uint16(e.Key())
	return reported
}

// pageFault reports whether a receive was returned because a page of its buffer was
// missing: a remote abort with vendor error 0x93.
func pageFault(e *wqe.CQE) bool {
	syndrome, vendor := e.Error()
	return syndrome == 0x22 && vendor == 0x93
}

// fail fills in a completion from an error CQE.
func fail(w *provider.WC, e *wqe.CQE) {
	syndrome, vendor := e.Error()
	w.Status, w.VendorErr = uint32(status(syndrome)), uint32(vendor)
	typ, hardware := e.Hardware()
	w.Ex = uint32(typ)<<8 | uint32(hardware)
}

// status translates a syndrome (MLX5_CQE_SYNDROME_*).
func status(syndrome uint8) uapi.IbWcStatus {
	switch syndrome {
	case 0x01:
		return uapi.IB_WC_LOC_LEN_ERR
	case 0x02:
		return uapi.IB_WC_LOC_QP_OP_ERR
	case 0x04:
		return uapi.IB_WC_LOC_PROT_ERR
	case 0x05:
		return uapi.IB_WC_WR_FLUSH_ERR
	case 0x06:
		return uapi.IB_WC_MW_BIND_ERR
	case 0x10:
		return uapi.IB_WC_BAD_RESP_ERR
	case 0x11:
		return uapi.IB_WC_LOC_ACCESS_ERR
	case 0x12:
		return uapi.IB_WC_REM_INV_REQ_ERR
	case 0x13:
		return uapi.IB_WC_REM_ACCESS_ERR
	case 0x14:
		return uapi.IB_WC_REM_OP_ERR
	case 0x15:
		return uapi.IB_WC_RETRY_EXC_ERR
	case 0x16:
		return uapi.IB_WC_RNR_RETRY_EXC_ERR
	case 0x22:
		return uapi.IB_WC_REM_ABORT_ERR
	}
	return uapi.IB_WC_GENERAL_ERR
}

// inline returns the n bytes of data in a CQE: up to 32 bytes at its start, or up to 64
// in the half before it.
func (q *cq) inline(i uint32, tail wqe.Tail, n int) []byte {
	half := (i&q.mask)*q.stride + q.stride - 1
	if tail.Scatter32() {
		return cqeBytes(&q.ring[half])[:min(n, 32)]
	}
	return cqeBytes(&q.ring[half&^1])[:min(n, 64)]
}

// scatter copies the data of a read or an atomic to the request's memory.
func (q *qp) scatter(tail wqe.Tail, e *wqe.CQE, data []byte) uapi.IbWcStatus {
	s := &q.sq
	at := tail.Counter() & s.mask
	var skip int
	switch e.SendOpcode() {
	case wqe.OpRDMARead:
		skip = 2
	case wqe.OpAtomicCS, wqe.OpAtomicFA, wqe.OpMaskedFA:
		skip = 3
	case wqe.OpMaskedCS:
		skip = 4
	default:
		return uapi.IB_WC_GENERAL_ERR
	}
	_, qpnDS := s.ring[at*wqe.BlockSegs].ControlOf()
	segs := make([]wqe.Segment, 0, 8)
	for i := skip; i < int(qpnDS&0x3f); i++ {
		segs = append(segs, s.ring[(int(at)*wqe.BlockSegs+i)%len(s.ring)])
	}
	return q.spread(segs, data)
}

// spread copies data to the memory of a scatter list, except for the parts in a null MR. q
// is nil for an XRC SRQ's receive, whose data is never in a CQE.
func (q *qp) spread(segs []wqe.Segment, data []byte) uapi.IbWcStatus {
	if q == nil || q.init.Scatter == nil {
		return uapi.IB_WC_GENERAL_ERR
	}
	for i := range segs {
		if len(data) == 0 {
			break
		}
		length, lkey, addr := segs[i].DataOf()
		if lkey == wqe.InvalidLKey {
			break
		}
		n := min(int(length), len(data))
		if null, ok := q.ctx.NullKey(); ok && lkey == null {
			data = data[n:]
			continue
		}
		if !q.init.Scatter(lkey, addr, data[:n]) {
			return uapi.IB_WC_LOC_PROT_ERR
		}
		data = data[n:]
	}
	if len(data) > 0 {
		return uapi.IB_WC_LOC_LEN_ERR
	}
	return uapi.IB_WC_SUCCESS
}
