package mlx5

import (
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

type qp struct {
	ctx  *context
	init provider.QPInit
	resp *uapi.Mlx5IbCreateQpResp

	extra    driverapi.MLX5QPOptions
	reset    bool // in RESET
	srq      *srq
	buf      buffer
	sendBuf  buffer // the send queue of a raw packet QP, which is separate
	record   *record
	reg      *register
	resource resource
	number   uint32
	raw      bool
	target   bool // a DCT: it has no queues, and the kernel creates it late
	late     *uapi.Mlx5IbModifyQpResp
	ece      ece

	sq sendQueue
	rq recvQueue
}

var errSRD = fmt.Errorf("%w: mlx5 has no SRD queue pairs, which are efa's", provider.ErrNotSupported)

// errCompressedSRQ: a compressed completion doesn't identify its receive in an SRQ, unless its
// format has the counter. The receives of a queue pair's own queue complete in order.
var errCompressedSRQ = fmt.Errorf("%w: on mlx5, completions of an SRQ's receives can be compressed with CompressStride only", provider.ErrNotSupported)

var errCompressedDisorder = fmt.Errorf("%w: on mlx5, completions of receives in any order can be compressed with CompressStride only", provider.ErrNotSupported)

// unnumbered reports whether a CQ's compressed completions lack the counter.
func unnumbered(p provider.CQ) bool {
	q, ok := p.(*cq)
	return ok && q.format&^wqe.MiniStride != 0
}

var errWQETooLong = operr.Invalid("mlx5: QPOptions.Cap needs longer work requests than the adapter allows")

func (c *context) NewQP(cmd ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	if init.Driver == provider.SRD {
		return nil, errSRD
	}
	q := &qp{ctx: c, init: *init, raw: init.Type == uapi.IB_UVERBS_QPT_RAW_PACKET, reset: true}
	q.extra, _ = init.Extra.(driverapi.MLX5QPOptions)
	if q.srq, _ = init.SRQ.(*srq); q.srq != nil && unnumbered(init.RecvCQ) {
		return nil, errCompressedSRQ
	}
	if q.extra.OutOfOrder && unnumbered(init.RecvCQ) {
		return nil, errCompressedDisorder
	}
	req := cmd.Mlx5().In()
	q.target = init.Driver == provider.DCTarget
	prepare := q.prepare
	switch {
	case q.target:
		prepare = q.prepareTarget
	case init.Type == uapi.IB_UVERBS_QPT_XRC_TGT:
		prepare = q.prepareXRCTarget
	}
	if err := prepare(req); err != nil {
		q.Release()
		return nil, err
	}
	if c.ece {
		req.EceOptions = eceTrigger
	}
	if q.extra.Credits {
		req.Flags |= uapi.MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE
	}
	if init.Sign {
		req.Flags |= uapi.MLX5_QP_FLAG_SIGNATURE
	}
	if init.Scatter != nil {
		req.Flags |= uapi.MLX5_QP_FLAG_SCATTER_CQE
	}
	q.resp = cmd.Mlx5().Out()
	return q, nil
}

// prepare allocates the queues, and describes them to the driver.
func (q *qp) prepare(req *uapi.Mlx5IbCreateQp) (err error) {
	q.rq.signed = q.init.Sign
	recv, err := q.sizeRecv()
	if err != nil {
		return err
	}
	send, err := q.sizeSend()
	if err != nil {
		return err
	}
	if q.record, err = q.ctx.records.take(); err != nil {
		return err
	}
	q.sq.record, q.rq.record = q.record, q.record
	if err = q.allocate(recv, send); err != nil {
		return err
	}
	req.SqBufAddr = q.sendBuf.addr()
	q.rq.hold(q.raw)

	if err := q.identify(&req.Uidx); err != nil {
		return err
	}
	if q.reg, err = q.ctx.uars.take(q.ctx.file, q.init.Single); err != nil {
		return err
	}
	flags := uint32(0)
	if q.reg != nil {
		req.BfregIndex = q.reg.page
		flags |= uapi.MLX5_QP_FLAG_UAR_PAGE_INDEX
	}
	if q.init.Driver == provider.DCInitiator {
		flags |= uapi.MLX5_QP_FLAG_TYPE_DCI
		if x := q.extra.Streams; x != nil {
			flags |= uapi.MLX5_QP_FLAG_DCI_STREAM
			req.DciStreams = uapi.Mlx5IbCreateQpDciStreams{LogNumConcurent: x.LogConcurrent, LogNumErrored: x.LogErrored}
		}
	}
	req.BufAddr, req.DbAddr, req.Flags = q.buf.addr(), q.record.addr(), flags
	req.SqWqeCount = uint32(send / wqe.BlockSize)
	if recv > 0 {
		req.RqWqeCount, req.RqWqeShift = uint32(len(q.rq.ids)), q.rq.shift
	}
	return nil
}

// allocate allocates the memory for queues of these sizes: the receives, the sends, and the
// records of both. The send queue of a raw packet QP is separate.
func (q *qp) allocate(recv, send int) (err error) {
	blocks, recvs := send/wqe.BlockSize, 0
	if recv > 0 {
		recvs = int(q.rq.mask) + 1
	}
	sends, sendAt, idsAt := &q.buf, recv, recv+send+blocks*slotSize
	if q.raw {
		if q.sendBuf, err = newBuffer(max(send+blocks*slotSize, 1)); err != nil {
			return err
		}
		sends, sendAt, idsAt = &q.sendBuf, 0, recv
	}
	if q.buf, err = newBuffer(max(idsAt+recvs*idSize, 1)); err != nil {
		return err
	}
	q.rq.ring, q.rq.ids = q.buf.segments(0, recv), q.buf.ids(idsAt, recvs)
	q.sq.ring, q.sq.slots = sends.segments(sendAt, send), sends.slots(sendAt+send, blocks)
	return nil
}

// prepareTarget describes a DC target, which receives from an SRQ. Its access key takes
// the place of the send queue's buffer.
func (q *qp) prepareTarget(req *uapi.Mlx5IbCreateQp) error {
	req.SqBufAddr, req.Flags = q.init.DCKey, uapi.MLX5_QP_FLAG_TYPE_DCT
	return q.identify(&req.Uidx)
}

// prepareXRCTarget describes the receiving side of XRC. Its completions are the SRQs', so
// it has no user index.
func (q *qp) prepareXRCTarget(req *uapi.Mlx5IbCreateQp) error {
	if q.ctx.cqeVersion == 0 {
		req.Uidx = noIndex
	}
	return nil
}

func (c *context) OpenQP(qpn uint32) provider.QP {
	return &qp{ctx: c, init: provider.QPInit{Type: uapi.IB_UVERBS_QPT_XRC_TGT}, number: qpn}
}

// noIndex is the user index of resources without one.
const noIndex = 0xffffff

// identify assigns the number of the QP in its CQEs.
func (q *qp) identify(uidx *uint32) error {
	q.resource.qp, q.resource.srq = q, q.srq
	if q.ctx.cqeVersion == 0 {
		*uidx = noIndex
		return nil
	}
	err := q.ctx.index.choose(&q.resource)
	*uidx = q.resource.number
	return err
}

func (q *qp) Adopt(_, qpn uint32, granted *uapi.IbUverbsQpCap) error {
	resp := *q.resp
	q.resp = nil
	q.number, q.ece.options = qpn, resp.EceOptions
	if q.target || q.init.Type == uapi.IB_UVERBS_QPT_XRC_TGT {
		*granted = uapi.IbUverbsQpCap{}
		return nil
	}
	if q.ctx.cqeVersion == 0 {
		q.ctx.index.enter(qpn, &q.resource)
	}
	if q.reg == nil {
		static := q.ctx.uars.static
		if int(resp.BfregIndex) >= len(static) {
			return fmt.Errorf("mlx5: the kernel chose doorbell register %d of %d", resp.BfregIndex, len(static))
		}
		q.reg = static[resp.BfregIndex]
	}
	s := &q.sq
	s.reg, q.rq.qpn = q.reg, qpn
	s.prepare(qpn)
	if s.record != nil {
		s.bell = mmio.Bell{Record: &s.record[sendRecord], Reg: q.reg.base, Size: q.reg.size}
	}
	s.uncached = q.reg.uncached
	if q.reg.shared == nil {
		s.blueFlame = q.reg.size
	} else {
		s.shared, s.sharedFlame = &q.reg.shared.Shared, q.reg.size
	}
	granted.MaxSendWr, granted.MaxInlineData = s.limit, uint32(s.maxData)
	granted.MaxRecvWr, granted.MaxRecvSge = q.rq.limit, uint32(q.rq.maxSGE)
	return nil
}

// maxWQESegments is the largest number of segments that a control segment can express.
const maxWQESegments = 63

// overhead returns the maximum number of segments in a WQE that are not data, and the number of
// them that precede the data of a message. The others occur only in requests without data.
func (q *qp) overhead() (all, front int, err error) {
	const control, address = 1, 1
	switch q.init.Type {
	case uapi.IB_UVERBS_QPT_RC, uapi.IB_UVERBS_QPT_UC:
		return control + wqe.UMRSegments, control, nil
	case uapi.IB_UVERBS_QPT_UD:
		return control + wqe.AVSegments, control + wqe.AVSegments, nil
	case uapi.IB_UVERBS_QPT_XRC_INI:
		return control + address + wqe.UMRSegments, control + address, nil
	case uapi.IB_UVERBS_QPT_RAW_PACKET:
		n := control + wqe.EthSegments(wqe.EthHeaderInline)
		return n, n, nil
	}
	if q.init.Driver == provider.DCInitiator {
		return control + wqe.AVSegments + wqe.UMRSegments, control + wqe.AVSegments, nil
	}
	return 0, 0, fmt.Errorf("mlx5: queue pairs of type %v are not supported", q.init.Type)
}

// sizeSend computes the send queue, and returns its length in bytes.
func (q *qp) sizeSend() (int, error) {
	c, l, s := &q.init.Cap, &q.ctx.limits, &q.sq
	overhead, front, err := q.overhead()
	if err != nil || c.MaxSendWr == 0 {
		return 0, err
	}
	header := (int(q.init.MaxTSOHeader) + wqe.SegmentSize - 1) / wqe.SegmentSize
	data := header + int(c.MaxSendSge)
	if c.MaxInlineData > 0 {
		data = max(data, wqe.InlineSegments(int(c.MaxInlineData)))
	}
	blocks := (overhead + data + wqe.BlockSegs - 1) / wqe.BlockSegs
	if blocks*wqe.BlockSize > l.sendWQE || blocks*wqe.BlockSegs > maxSegments || front+data > maxWQESegments {
		return 0, errWQETooLong
	}
	if int(c.MaxSendWr) > l.sendBlocks {
		return 0, operr.Invalid("mlx5: %d send work requests: the adapter's maximum is %d blocks", c.MaxSendWr, l.sendBlocks)
	}
	ring := roundUp(int(c.MaxSendWr) * blocks)
	if ring > l.sendBlocks {
		return 0, operr.Invalid("mlx5: %d send work requests of %d blocks: the adapter's maximum is %d blocks", c.MaxSendWr, blocks, l.sendBlocks)
	}
	s.mask, s.limit = uint32(ring-1), uint32(ring/blocks)
	s.lastWhole, s.maxSGE = uint32(ring-blocks), int(c.MaxSendSge)
	s.maxData = max(min(blocks*wqe.BlockSegs-overhead, maxWQESegments-front)*wqe.SegmentSize-wqe.InlineHeader, 0)
	s.maxSegments = min(blocks*wqe.BlockSegs, maxWQESegments)
	s.spare = new(window)
	if q.init.SignalAll {
		s.signal = wqe.CtrlCQUpdate
	}
	switch {
	case q.init.Type == uapi.IB_UVERBS_QPT_UD:
		s.before = datagram
	case q.init.Type == uapi.IB_UVERBS_QPT_XRC_INI:
		s.before = shared
	case q.init.Driver == provider.DCInitiator:
		s.before = dynamic
	case q.raw:
		s.before = packet
		s.header, s.maxHeader = q.ctx.ethInline, int(q.init.MaxTSOHeader)
		s.checksums, s.maxTSO = q.init.Checksums, uint64(q.init.MaxTSO)
		s.spareSGL = make([]provider.SGE, c.MaxSendSge)
	}
	s.short = (s.before == connected || s.before == datagram) && s.maxSGE > 0 && !q.init.Sign
	s.signed = q.init.Sign
	if q.init.Type != uapi.IB_UVERBS_QPT_UC && !q.raw && s.before != datagram {
		s.atomics = q.ctx.atomics(&q.init)
	}
	return ring * wqe.BlockSize, nil
}

// sizeRecv computes the receive queue, and returns its length in bytes. If the adapter uses
// receives in any order, the queue has two WQEs per receive.
func (q *qp) sizeRecv() (int, error) {
	c, disorder := q.init.Cap, q.extra.OutOfOrder
	if disorder && c.MaxRecvWr > 1 {
		if limit := q.ctx.limits.recvWQEs / 2; int(c.MaxRecvWr) > limit {
			return 0, operr.Invalid("mlx5: %d receives in any order: the adapter's maximum is %d", c.MaxRecvWr, limit)
		}
		c.MaxRecvWr *= 2
	}
	n, err := q.rq.size(&q.ctx.limits, &c)
	if n > 0 && disorder {
		q.rq.allowDisorder()
	}
	return n, err
}

// size computes a receive queue, and returns its length in bytes.
func (r *recvQueue) size(l *limits, c *uapi.IbUverbsQpCap) (int, error) {
	if c.MaxRecvWr == 0 {
		return 0, nil
	}
	if int(c.MaxRecvWr) > l.recvWQEs {
		return 0, operr.Invalid("mlx5: %d receives: the adapter's maximum is %d", c.MaxRecvWr, l.recvWQEs)
	}
	signature := 0
	if r.signed {
		signature = 1
	}
	segs := roundUp(max(int(c.MaxRecvSge), 1) + signature)
	if segs*wqe.SegmentSize > l.recvWQE || segs > maxSegments {
		return 0, errWQETooLong
	}
	length := max(roundUp(int(c.MaxRecvWr))*segs*wqe.SegmentSize, wqe.BlockSize)
	count := length / (segs * wqe.SegmentSize)
	r.shift, r.mask, r.maxSGE = uint32(bits.TrailingZeros(uint(segs*wqe.SegmentSize))), uint32(count-1), segs-signature
	r.limit = uint32(count)
	return length, nil
}

// Modify adds a part for three purposes. The kernel creates a DCT, with its number, at the move to
// RTR. Other QPs may request ECE. The move to INIT permits receives in any order.
func (q *qp) Modify() (cmd ioctl.WriteExModifyQp, ok bool) {
	q.late = nil // of an earlier command that has failed
	if !q.target && q.ece.asked == 0 && !q.extra.OutOfOrder {
		return cmd, false
	}
	cmd = ioctl.NewWriteExModifyQp()
	in := cmd.Mlx5().In()
	in.EceOptions = q.ece.asked
	if q.extra.OutOfOrder && q.reset {
		in.CompMask = uint32(uapi.MLX5_IB_MODIFY_QP_OOO_DP)
	}
	q.late = cmd.Mlx5().Out()
	return cmd, true
}

func (q *qp) LimitBurst(cmd ioctl.WriteExModifyQp, burst uint32, packet uint16) {
	cmd.Mlx5().In().BurstInfo = uapi.Mlx5IbBurstInfo{MaxBurstSz: burst, TypicalPktSz: packet}
}

func (q *qp) Moved(to uapi.IbQpState) uint32 {
	// The kernel creates a DCT at the move to RTR.
	if q.late != nil && (!q.target || to == uapi.IB_QPS_RTR) {
		q.ece.setResponse(q.late)
	}
	q.reset = to == uapi.IB_QPS_RESET
	switch to {
	case uapi.IB_QPS_RESET:
		q.sq.reset()
		q.rq.reset()
		q.rq.hold(q.raw)
	case uapi.IB_QPS_RTR:
		if q.rq.held {
			q.rq.hold(false)
			q.rq.publish()
		}
		if q.late != nil && q.late.Dctn != 0 {
			q.number = q.late.Dctn
			if q.ctx.cqeVersion == 0 {
				q.ctx.index.enter(q.number, &q.resource)
			}
		}
	}
	q.late = nil
	return q.number
}

func (q *qp) Release() {
	if q.ctx.cqeVersion == 0 {
		q.ctx.index.leave(q.number, &q.resource)
	} else {
		q.ctx.index.drop(&q.resource)
	}
	q.ctx.uars.give(q.reg)
	q.ctx.records.give(q.record)
	q.buf.release()
	q.sendBuf.release()
	q.reg, q.record = nil, nil
	q.sq.ring, q.sq.slots, q.rq.ring, q.rq.ids = nil, nil, nil, nil
}
