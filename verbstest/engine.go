package verbstest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A qp is a queue pair. Its requests are carried out one after the other, by the goroutine that
// rings the doorbell or, if a request must wait, by a timer. They run with the Network's lock held.
type qp struct {
	file           *file
	num, pd        uint32
	user           uint64
	typ            uapi.IbUverbsQpType
	cap            uapi.IbUverbsQpCap
	signalAll      bool
	sendCQ, recvCQ *cq
	srq            *srq
	sq, rq         *ring // rq is nil with an SRQ

	state uapi.IbQpState
	attr  uapi.IbUverbsModifyQp // the attributes set last

	// Of the request at the head of sq.
	seq      int
	attempt  int
	silences int      // attempts without an answer
	refusals int      // attempts that found no receive
	answer   *verdict // of an attempt that was carried out, if its answer was lost
	timer    *time.Timer
}

// A verdict is the outcome of an attempt at a request.
type verdict struct {
	status verbs.WCStatus
	again  bool          // try the request again
	after  time.Duration // the delay before the retry; if negative, it waits for a change
	bytes  int           // the number of bytes read
}

func failed(s verbs.WCStatus) verdict { return verdict{status: s} }

// modify is MODIFY_QP.
func (q *qp) modify(a *uapi.IbUverbsModifyQp) syscall.Errno {
	mask := uapi.IbQpAttrMask(a.AttrMask)
	if mask&uapi.IB_QP_AV != 0 && (a.Dest.IsGlobal == 0 || int(a.Dest.SgidIndex) >= len(q.file.dev.gids)) {
		return syscall.EINVAL
	}
	next := q.state
	if mask&uapi.IB_QP_STATE != 0 {
		next = uapi.IbQpState(a.QpState)
	}
	if uapi.WhyNotModifyQP(verbs.QPType(q.typ).String(), q.state, next, mask) != "" {
		return syscall.EINVAL
	}
	if mask&uapi.IB_QP_MAX_QP_RD_ATOMIC != 0 && a.MaxRdAtomic > maxAtomic || mask&uapi.IB_QP_MAX_DEST_RD_ATOMIC != 0 && a.MaxDestRdAtomic > maxAtomic {
		return syscall.EINVAL
	}
	set := func(bit uapi.IbQpAttrMask, do func()) {
		if mask&bit != 0 {
			do()
		}
	}
	to := &q.attr
	set(uapi.IB_QP_ACCESS_FLAGS, func() { to.QpAccessFlags = a.QpAccessFlags })
	set(uapi.IB_QP_PKEY_INDEX, func() { to.PkeyIndex = a.PkeyIndex })
	set(uapi.IB_QP_PORT, func() { to.PortNum = a.PortNum })
	set(uapi.IB_QP_QKEY, func() { to.Qkey = a.Qkey })
	set(uapi.IB_QP_AV, func() { to.Dest = a.Dest })
	set(uapi.IB_QP_PATH_MTU, func() { to.PathMtu = a.PathMtu })
	set(uapi.IB_QP_TIMEOUT, func() { to.Timeout = a.Timeout })
	set(uapi.IB_QP_RETRY_CNT, func() { to.RetryCnt = a.RetryCnt })
	set(uapi.IB_QP_RNR_RETRY, func() { to.RnrRetry = a.RnrRetry })
	set(uapi.IB_QP_RQ_PSN, func() { to.RqPsn = a.RqPsn })
	set(uapi.IB_QP_SQ_PSN, func() { to.SqPsn = a.SqPsn })
	set(uapi.IB_QP_MAX_QP_RD_ATOMIC, func() { to.MaxRdAtomic = a.MaxRdAtomic })
	set(uapi.IB_QP_MAX_DEST_RD_ATOMIC, func() { to.MaxDestRdAtomic = a.MaxDestRdAtomic })
	set(uapi.IB_QP_MIN_RNR_TIMER, func() { to.MinRnrTimer = a.MinRnrTimer })
	set(uapi.IB_QP_DEST_QPN, func() { to.DestQpNum = a.DestQpNum })
	if mask&uapi.IB_QP_STATE == 0 {
		return 0
	}
	switch from := q.state; next {
	case uapi.IB_QPS_RESET:
		q.reset()
	case uapi.IB_QPS_ERR:
		q.fail()
	case uapi.IB_QPS_SQD:
		q.state = uapi.IB_QPS_SQD
		if from == uapi.IB_QPS_RTS && mask&uapi.IB_QP_EN_SQD_ASYNC_NOTIFY != 0 && a.EnSqdAsyncNotify != 0 {
			q.file.event(uapi.IB_EVENT_SQ_DRAINED, q.user)
		}
	default:
		q.state = next
		q.run()
	}
	return 0
}

// reset empties the queues.
func (q *qp) reset() {
	q.state, q.attr = uapi.IB_QPS_RESET, uapi.IbUverbsModifyQp{}
	q.stop()
	q.sq.clear()
	if q.rq != nil {
		q.rq.clear()
	}
}

// stop resets the count of attempts at the request at the head.
func (q *qp) stop() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timer, q.attempt, q.silences, q.refusals, q.answer = nil, 0, 0, 0, nil
}

// fail moves to ERR, and flushes the queues.
func (q *qp) fail() {
	first := q.state != uapi.IB_QPS_ERR
	q.state = uapi.IB_QPS_ERR
	q.stop()
	for q.sq.len() > 0 {
		w := (*uapi.RxeSendWqe)(q.sq.head())
		q.complete(w, verdict{status: verbs.WCWRFlushErr})
	}
	for q.rq != nil && q.rq.len() > 0 {
		w := (*uapi.RxeRecvWqe)(q.rq.head())
		q.recvCQ.add(&uapi.IbUverbsWc{WrId: w.WrId, Status: uint32(uapi.IB_WC_WR_FLUSH_ERR), Opcode: uint32(uapi.IB_WC_RECV), QpNum: q.num}, false)
		q.rq.drop()
	}
	if q.srq != nil && first {
		q.file.event(uapi.IB_EVENT_QP_LAST_WQE_REACHED, q.user)
	}
}

// run carries out the requests until there are none, or one must wait.
func (q *qp) run() {
	if q.state == uapi.IB_QPS_ERR {
		q.fail()
		return
	}
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	for q.state == uapi.IB_QPS_RTS && q.sq.len() > 0 {
		w := (*uapi.RxeSendWqe)(q.sq.head())
		v := q.try(w)
		q.attempt++
		switch {
		case v.again && v.after == 0:
		case v.again:
			if v.after > 0 {
				q.later(v.after)
			}
			return
		default:
			q.stop()
			q.complete(w, v)
			if v.status != verbs.WCSuccess {
				q.fail()
			}
		}
	}
}

// complete completes the request at the head.
func (q *qp) complete(w *uapi.RxeSendWqe, v verdict) {
	q.seq++
	wc := uapi.IbUverbsWc{WrId: w.Wr.WrId, Status: uint32(v.status), QpNum: q.num, ByteLen: uint32(v.bytes)}
	switch uapi.IbUverbsWrOpcode(w.Wr.Opcode) {
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		wc.Opcode = uint32(uapi.IB_UVERBS_WC_RDMA_WRITE)
	case uapi.IB_UVERBS_WR_RDMA_READ:
		wc.Opcode = uint32(uapi.IB_UVERBS_WC_RDMA_READ)
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		wc.Opcode = uint32(uapi.IB_UVERBS_WC_COMP_SWAP)
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		wc.Opcode = uint32(uapi.IB_UVERBS_WC_FETCH_ADD)
	}
	signaled := q.signalAll || uapi.IbSendFlags(w.Wr.SendFlags)&uapi.IB_SEND_SIGNALED != 0
	q.sq.drop()
	if signaled || v.status != verbs.WCSuccess {
		q.sendCQ.add(&wc, false)
	}
}

// try makes one attempt at a request.
func (q *qp) try(w *uapi.RxeSendWqe) verdict {
	op := uapi.IbUverbsWrOpcode(w.Wr.Opcode)
	rdma := op == uapi.IB_UVERBS_WR_RDMA_WRITE || op == uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
	message := op == uapi.IB_UVERBS_WR_SEND || op == uapi.IB_UVERBS_WR_SEND_WITH_IMM
	fetch := op == uapi.IB_UVERBS_WR_RDMA_READ || op == uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP || op == uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD
	switch {
	case !message && !rdma && !fetch, !message && q.typ == uapi.IB_UVERBS_QPT_UD, fetch && q.typ == uapi.IB_UVERBS_QPT_UC:
		return failed(verbs.WCLocQPOpErr)
	}
	var access uapi.IbUverbsAccessFlags
	if fetch {
		access = uapi.IB_UVERBS_ACCESS_LOCAL_WRITE
	}
	n := q.file.dev.net
	var ok bool
	if uapi.IbSendFlags(w.Wr.SendFlags)&uapi.IB_SEND_INLINE != 0 {
		n.src = append(n.src[:0], inline(unsafe.Pointer(w), w.Dma.Length))
	} else if n.src, ok = q.local(n.src[:0], sges(unsafe.Pointer(w), sendSize, w.Dma.NumSge), access); !ok {
		return failed(verbs.WCLocProtErr)
	}
	peer := q.peer()
	f := Fault{}
	if n.fault != nil {
		to := ""
		if peer != nil {
			to = peer.file.dev.Name()
		}
		f = n.fault(Request{q.file.dev.Name(), q.num, q.seq, q.attempt, w.Wr.WrId, verbs.Opcode(op), n.src.len(), to})
	}
	switch f.kind {
	case hold:
		return verdict{again: true, after: -1}
	case fail:
		return failed(f.status)
	}
	if q.typ == uapi.IB_UVERBS_QPT_UD {
		if n.src.len() > mtu {
			return failed(verbs.WCLocLenErr)
		}
		if f.kind != lose {
			q.datagram(w, n.src)
		}
		return verdict{}
	}
	if f.kind == lose || peer == nil {
		if q.typ == uapi.IB_UVERBS_QPT_UC {
			return verdict{}
		}
		return q.silence(f.kind == lose)
	}
	if q.answer != nil { // the receiver knows the request
		if f.kind == loseAnswer {
			return q.silence(true)
		}
		return *q.answer
	}
	if f.kind == late && q.typ == uapi.IB_UVERBS_QPT_RC && op == uapi.IB_UVERBS_WR_RDMA_WRITE {
		data := make([]byte, n.src.len())
		list{data}.from(n.src)
		n.late = append(n.late, lateWrite{q, peer, *w, data})
		return failed(verbs.WCRetryExcErr)
	}
	if f.kind == notReady && q.typ == uapi.IB_UVERBS_QPT_RC && (message || op == uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM) {
		return q.refused(0)
	}
	q.silences = 0
	v := peer.receive(q, w, op, n.src)
	if q.typ == uapi.IB_UVERBS_QPT_UC {
		return verdict{}
	}
	if f.kind == loseAnswer && !v.again && v.status == verbs.WCSuccess {
		answer := v // v itself would be allocated for each request
		q.answer = &answer
		return q.silence(true)
	}
	return v
}

// A lateWrite is a write that arrives after its sender has seen it fail.
type lateWrite struct {
	from, to *qp
	request  uapi.RxeSendWqe
	data     []byte
}

// arrive carries out the late writes, as far as their receivers still accept packets.
func (n *Network) arrive() {
	writes := n.late
	n.late = nil
	for i := range writes {
		w := &writes[i]
		if n.qps[w.to.num] == w.to && w.to.listens() {
			w.to.receive(w.from, &w.request, uapi.IB_UVERBS_WR_RDMA_WRITE, list{w.data})
		}
	}
}

// peer returns the queue pair that receives q's packets, or nil.
func (q *qp) peer() *qp {
	d := q.file.dev
	p := d.net.qps[q.attr.DestQpNum]
	if p == nil || p.typ != q.typ || p.attr.DestQpNum != q.num || !p.listens() || !slices.Contains(p.file.dev.gids, q.attr.Dest.Dgid) {
		return nil
	}
	if p.file.dev != d && (d.down || p.file.dev.down) {
		return nil
	}
	return p
}

// listens reports whether the queue pair accepts packets.
func (q *qp) listens() bool {
	return q.state == uapi.IB_QPS_RTR || q.state == uapi.IB_QPS_RTS || q.state == uapi.IB_QPS_SQD
}

// silence returns the verdict on an attempt without an answer.
func (q *qp) silence(lost bool) verdict {
	q.silences++
	timeout := verbs.AckTimeout(q.attr.Timeout).Duration()
	switch {
	case timeout == 0:
		return verdict{again: true, after: -1}
	case q.silences > int(q.attr.RetryCnt):
		return failed(verbs.WCRetryExcErr)
	case lost:
		return verdict{again: true}
	}
	return verdict{again: true, after: timeout}
}

// refused returns the verdict on an attempt for which there was no receive.
func (q *qp) refused(timer time.Duration) verdict {
	const forEver = 7
	q.refusals++
	if q.attr.RnrRetry != forEver && q.refusals > int(q.attr.RnrRetry) {
		return failed(verbs.WCRNRRetryExcErr)
	}
	return verdict{again: true, after: timer}
}

// local appends the memory of l, a local scatter/gather list of the queue pair.
func (q *qp) local(to list, l []uapi.RxeSge, access uapi.IbUverbsAccessFlags) (list, bool) {
	for i := range l {
		b, ok := q.registered(l[i].Lkey, l[i].Addr, uint64(l[i].Length), access)
		if !ok {
			return to, false
		}
		to = append(to, b)
	}
	return to, true
}

// registered returns memory that is registered with the queue pair's PD.
func (q *qp) registered(key uint32, addr, n uint64, access uapi.IbUverbsAccessFlags) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	m := q.file.dev.mrs[key]
	if m == nil || m.pd != q.pd || uapi.IbUverbsAccessFlags(m.access)&access != access || addr < m.iova || addr-m.iova > m.length || n > m.length-(addr-m.iova) {
		return nil, false
	}
	return memory(m.start+(addr-m.iova), int(n)), true
}

// refuse moves the responder to ERR, and returns the requester's status.
func (q *qp) refuse(event uapi.IbEventType, status verbs.WCStatus) verdict {
	q.file.event(event, q.user)
	q.fail()
	return failed(status)
}

// receive is the responder's part of a request of a connected queue pair.
func (q *qp) receive(from *qp, w *uapi.RxeSendWqe, op uapi.IbUverbsWrOpcode, data list) verdict {
	has := func(a uapi.IbUverbsAccessFlags) bool {
		return uapi.IbUverbsAccessFlags(q.attr.QpAccessFlags)&a != 0
	}
	invalid := func() verdict { return q.refuse(uapi.IB_EVENT_QP_REQ_ERR, verbs.WCRemInvReqErr) }
	denied := func() verdict { return q.refuse(uapi.IB_EVENT_QP_ACCESS_ERR, verbs.WCRemAccessErr) }
	size := data.len()
	switch op {
	case uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		return q.message(from, w, data, nil)
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		if !has(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE) {
			return invalid()
		}
		imm := op == uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
		if imm && q.waiting() == 0 {
			return from.refused(verbs.RNRTimer(q.attr.MinRnrTimer).Duration())
		}
		r := w.Wr.Wr.Rdma()
		to, ok := q.registered(r.Rkey, r.RemoteAddr, uint64(size), uapi.IB_UVERBS_ACCESS_REMOTE_WRITE)
		if !ok {
			return denied()
		}
		list{to}.from(data)
		if imm {
			q.received(&uapi.IbUverbsWc{Opcode: uint32(uapi.IB_WC_RECV_RDMA_WITH_IMM), ByteLen: uint32(size)}, w)
		}
		return verdict{}
	case uapi.IB_UVERBS_WR_RDMA_READ:
		if !has(uapi.IB_UVERBS_ACCESS_REMOTE_READ) {
			return invalid()
		}
		r := w.Wr.Wr.Rdma()
		b, ok := q.registered(r.Rkey, r.RemoteAddr, uint64(size), uapi.IB_UVERBS_ACCESS_REMOTE_READ)
		if !ok {
			return denied()
		}
		data.from(list{b})
		return verdict{bytes: size}
	}
	a := w.Wr.Wr.Atomic()
	if !has(uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC) || a.RemoteAddr%8 != 0 {
		return invalid()
	}
	if size < 8 {
		return failed(verbs.WCLocLenErr)
	}
	b, ok := q.registered(a.Rkey, a.RemoteAddr, 8, uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
	if !ok {
		return denied()
	}
	var before, after [8]byte
	move(before[:], b)
	word := binary.NativeEndian.Uint64(before[:])
	switch {
	case op == uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		binary.NativeEndian.PutUint64(after[:], word+a.CompareAdd)
	case word == a.CompareAdd:
		binary.NativeEndian.PutUint64(after[:], a.Swap)
	default:
		after = before
	}
	move(b, after[:])
	data.from(list{before[:]})
	return verdict{bytes: 8}
}

// waiting returns the number of receives.
func (q *qp) waiting() uint32 { return q.receives().len() }

func (q *qp) receives() *ring {
	if q.srq != nil {
		return q.srq.ring
	}
	return q.rq
}

// received completes the receive at the head, for a request.
func (q *qp) received(wc *uapi.IbUverbsWc, w *uapi.RxeSendWqe) {
	r := q.receives()
	wc.WrId, wc.QpNum, wc.PortNum = (*uapi.RxeRecvWqe)(r.head()).WrId, q.num, 1
	switch uapi.IbUverbsWrOpcode(w.Wr.Opcode) {
	case uapi.IB_UVERBS_WR_SEND_WITH_IMM, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		wc.WcFlags |= uint32(uapi.IB_WC_WITH_IMM)
		wc.Ex[0] = w.Wr.Ex[0]
	}
	r.drop()
	if s := q.srq; s != nil && s.limit > 0 && r.len() < s.limit {
		s.limit = 0
		s.file.event(uapi.IB_EVENT_SRQ_LIMIT_REACHED, s.user)
	}
	q.recvCQ.add(wc, uapi.IbSendFlags(w.Wr.SendFlags)&uapi.IB_SEND_SOLICITED != 0)
}

// message places a message in the receive at the head. A datagram comes with its header, grh.
func (q *qp) message(from *qp, w *uapi.RxeSendWqe, data list, grh []byte) verdict {
	datagram := grh != nil
	if q.waiting() == 0 {
		if datagram {
			return verdict{}
		}
		return from.refused(verbs.RNRTimer(q.attr.MinRnrTimer).Duration())
	}
	n := q.file.dev.net
	r := (*uapi.RxeRecvWqe)(q.receives().head())
	var ok bool
	n.dst, ok = q.local(n.dst[:0], sges(unsafe.Pointer(r), recvSize, r.Dma.NumSge), uapi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	wc := uapi.IbUverbsWc{Opcode: uint32(uapi.IB_WC_RECV), ByteLen: uint32(data.len() + len(grh))}
	status, reason := verbs.WCSuccess, verbs.WCSuccess
	switch {
	case !ok:
		status, reason = verbs.WCLocProtErr, verbs.WCRemOpErr
	case n.dst.len() < int(wc.ByteLen) && datagram:
		return verdict{}
	case n.dst.len() < int(wc.ByteLen):
		status, reason = verbs.WCLocLenErr, verbs.WCRemInvReqErr
	case datagram:
		wc.SrcQp, wc.WcFlags = from.num, uint32(uapi.IB_WC_GRH)
		n.dst.from(list{grh})
		n.dst.skip(len(grh)).from(data)
	default:
		wc.SrcQp = from.num
		n.dst.from(data)
	}
	wc.Status = uint32(status)
	q.received(&wc, w)
	if status != verbs.WCSuccess {
		q.fail()
	}
	return failed(reason)
}

// datagram sends a datagram to all queue pairs that it is for.
func (q *qp) datagram(w *uapi.RxeSendWqe, data list) {
	d, ud := q.file.dev, w.Wr.Wr.Ud()
	a, ok := d.ahs[ud.AhNum]
	if !ok {
		return
	}
	grh := header(d.gids[a.Grh.SgidIndex], &a.Grh, data.len())
	for _, other := range d.net.devices {
		if other.gone || other != d && (d.down || other.down) {
			continue
		}
		to := other.groups[a.Grh.Dgid]
		if p := d.net.qps[ud.RemoteQpn]; p != nil && p.file.dev == other && slices.Contains(other.gids, a.Grh.Dgid) {
			to = []*qp{p}
		}
		for _, p := range to {
			if p.typ == uapi.IB_UVERBS_QPT_UD && p.listens() && p.attr.Qkey == ud.RemoteQkey {
				p.message(q, w, data, grh)
			}
		}
	}
}

// header returns the 40 bytes before a datagram: an IPv6 header, or an IPv4 header in its second half.
func header(src [16]byte, g *uapi.IbUverbsGlobalRoute, n int) []byte {
	const udp, udpPort = 17, 8 + 12 + 8 + 4 // the headers of UDP and of a datagram, and the checksum
	b := make([]byte, 40)
	if from, to := netip.AddrFrom16(src).Unmap(), netip.AddrFrom16(g.Dgid).Unmap(); from.Is4() && to.Is4() {
		ip := b[20:]
		ip[0], ip[1], ip[8], ip[9] = 0x45, g.TrafficClass, g.HopLimit, udp
		binary.BigEndian.PutUint16(ip[2:], uint16(20+udpPort+n))
		copy(ip[12:], from.AsSlice())
		copy(ip[16:], to.AsSlice())
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
		return b
	}
	binary.BigEndian.PutUint32(b, 6<<28|uint32(g.TrafficClass)<<20|g.FlowLabel&0xfffff)
	binary.BigEndian.PutUint16(b[4:], uint16(udpPort+n))
	b[6], b[7] = udp, g.HopLimit
	copy(b[8:], src[:])
	copy(b[24:], g.Dgid[:])
	return b
}
