package efa

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

type qp struct {
	ctx    *context
	resp   *uapi.EfaIbvCreateQpResp
	number uint16
	srd    bool

	sendCQ, recvCQ *cq
	unsolicited    bool // a completion may have no receive

	sq sendRing
	rq recvRing
}

var (
	errType      = fmt.Errorf("%w: efa has only UD and SRD queue pairs: no connections", provider.ErrNotSupported)
	errSigned    = fmt.Errorf("%w: efa's work requests have no signatures", provider.ErrNotSupported)
	errUnsolicit = fmt.Errorf("%w: the device completes no RDMA write with immediate data without a receive", provider.ErrNotSupported)
	errNoRDMA    = fmt.Errorf("%w: the device has no RDMA writes", provider.ErrNotSupported)
	errServiceUD = errors.New("efa: only an SRD queue pair has options")
	errQPNumber  = errors.New("efa: the kernel reports a queue pair number of more than 16 bits")
	errRecvRing  = errors.New("efa: the kernel's receive queue is shorter than requested")
)

// maxRing is the maximum length for the doorbells' counters of 16 bits.
const maxRing = 1 << 15

// exceeds returns the error for a value above a limit.
func exceeds(what string, v, limit uint32) error {
	return fmt.Errorf("%w: %s %d: the device's maximum is %d", provider.ErrNotSupported, what, v, limit)
}

func (c *context) NewQP(cmd ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	q := &qp{ctx: c, srd: init.Driver == provider.SRD}
	switch {
	case init.Type != uapi.IB_UVERBS_QPT_UD && !q.srd:
		return nil, errType
	case init.SRQ != nil:
		return nil, errSRQ
	case init.Sign:
		return nil, errSigned
	}
	q.sendCQ, _ = init.SendCQ.(*cq)
	q.recvCQ, _ = init.RecvCQ.(*cq)
	q.sq.sigAll = init.SignalAll
	req := cmd.Efa().In()
	if extra, ok := init.Extra.(driverapi.EFAQP); ok {
		if err := q.extra(req, extra); err != nil {
			return nil, err
		}
	}
	if err := q.size(req, &init.Cap); err != nil {
		return nil, err
	}
	if q.srd {
		req.DriverQpType = uapi.EFA_QP_DRIVER_TYPE_SRD
	}
	q.resp = cmd.Efa().Out()
	return q, nil
}

// extra applies the options of package efadv.
func (q *qp) extra(req *uapi.EfaIbvCreateQp, o driverapi.EFAQP) error {
	if !q.srd {
		return errServiceUD
	}
	if o.UnsolicitedWriteRecv {
		if !q.ctx.has(uapi.EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV) {
			return errUnsolicit
		}
		req.Flags |= uapi.EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV
		q.unsolicited = true
	}
	if o.InlineWrite {
		if !q.ctx.has(uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE) {
			return errNoRDMA
		}
		q.sq.inlineWrite = true
	}
	req.Sl = o.ServiceLevel
	return nil
}

// size chooses the lengths of the queues, and enters them into the request.
func (q *qp) size(req *uapi.EfaIbvCreateQp, cap *uapi.IbUverbsQpCap) error {
	l := &q.ctx.limits
	sends, recvs := uint32(min(l.device.MaxSqSge, maxSendSGE)), uint32(l.device.MaxRqSge)
	switch {
	case cap.MaxSendSge > sends:
		return exceeds("MaxSendSGE", cap.MaxSendSge, sends)
	case cap.MaxRecvSge > recvs:
		return exceeds("MaxRecvSGE", cap.MaxRecvSge, recvs)
	case cap.MaxInlineData > l.maxInline:
		return exceeds("MaxInlineData", cap.MaxInlineData, l.maxInline)
	}
	s := &q.sq
	if s.size = shortWQE; cap.MaxInlineData > shortInline || s.inlineWrite {
		s.size = longWQE
	}
	n := uint32(ceilPower(int(max(cap.MaxSendWr, uint32(l.context.MinSqWr)))))
	if limit := l.context.MaxLlqSize / s.size; n > limit || n > maxRing {
		return exceeds("MaxSendWR", cap.MaxSendWr, min(limit, maxRing))
	}
	s.maxSGE, s.maxInline, s.mask = int(cap.MaxSendSge), int(cap.MaxInlineData), n-1
	s.digits, s.ops = uint8(bits.Len32(n-1)), q.operations()
	s.batch = maxRing
	if batch := uint32(l.context.MaxTxBatch); batch > 0 {
		s.batch = max(batch*shortWQE/s.size, 1)
	}
	if l.context.MinSqWr > 0 && n > 1 {
		s.batch = min(s.batch, n-1) // such a device can't take the whole queue with one doorbell
	}
	cap.MaxSendWr, req.SqRingSize = n, n*s.size

	if cap.MaxRecvWr == 0 || cap.MaxRecvSge == 0 {
		cap.MaxRecvWr, cap.MaxRecvSge = 0, 0
		return nil
	}
	pieces := uint64(cap.MaxRecvWr) * uint64(cap.MaxRecvSge)
	if pieces > uint64(l.device.MaxRqWr) || pieces > maxRing {
		return exceeds("MaxRecvWR * MaxRecvSGE", cap.MaxRecvWr*cap.MaxRecvSge, min(l.device.MaxRqWr, maxRing))
	}
	ring := uint32(ceilPower(int(pieces)))
	q.rq.maxSGE, q.rq.mask = int(cap.MaxRecvSge), ring-1
	cap.MaxRecvWr, req.RqRingSize = ring/cap.MaxRecvSge, ring*recvDescSize
	return nil
}

func (q *qp) Adopt(_, qpn uint32, granted *uapi.IbUverbsQpCap) (err error) {
	resp := *q.resp
	q.resp = nil
	if qpn > 0xffff {
		return errQPNumber
	}
	q.number = uint16(qpn)
	generation := q.ctx.qps.enter(q)
	if err := q.sq.open(q.ctx, &resp, generation); err != nil {
		return err
	}
	granted.MaxSendWr, granted.MaxInlineData = q.sq.mask+1, uint32(q.sq.maxInline)
	granted.MaxSendSge = uint32(q.sq.maxSGE)
	if q.rq.maxSGE == 0 {
		return nil
	}
	granted.MaxRecvWr = (q.rq.mask + 1) / uint32(q.rq.maxSGE)
	granted.MaxRecvSge = uint32(q.rq.maxSGE)
	return q.rq.open(q.ctx, &resp, generation)
}

func (s *sendRing) open(c *context, resp *uapi.EfaIbvCreateQpResp, generation uint16) (err error) {
	s.ctx = c
	n := int(s.mask) + 1
	size := n * int(s.size)
	page := os.Getpagesize()
	at := int64(resp.LlqDescOffset)
	if at%8 != 0 || at >= int64(page) {
		return errOffset
	}
	if s.device, err = c.file.Mmap(resp.LlqDescMmapKey, (int(at)+size+page-1)&^(page-1)); err != nil {
		return err
	}
	s.ring = unsafe.Pointer(&s.device[at])
	if s.bellPage, err = mapDoorbell(c.file, resp.SqDbMmapKey, resp.SqDbOffset); err != nil {
		return err
	}
	s.bell = (*uint32)(unsafe.Pointer(&s.bellPage[resp.SqDbOffset]))
	if s.stageMem, err = ioctl.MapMemory(size); err != nil {
		return err
	}
	s.stage = unsafe.Pointer(unsafe.SliceData(s.stageMem))
	return s.requests.open(n, generation)
}

func (r *recvRing) open(c *context, resp *uapi.EfaIbvCreateQpResp, generation uint16) (err error) {
	size := (int(r.mask) + 1) * recvDescSize
	if resp.RqMmapSize < uint64(size) || resp.RqMmapSize > 1<<30 {
		return errRecvRing
	}
	if r.mem, err = c.file.Mmap(resp.RqMmapKey, int(resp.RqMmapSize)); err != nil {
		return err
	}
	r.ring = unsafe.Slice((*recvDesc)(unsafe.Pointer(unsafe.SliceData(r.mem))), r.mask+1)
	if r.bellPage, err = mapDoorbell(c.file, resp.RqDbMmapKey, resp.RqDbOffset); err != nil {
		return err
	}
	r.bell = (*uint32)(unsafe.Pointer(&r.bellPage[resp.RqDbOffset]))
	return r.requests.open((int(r.mask)+1)/r.maxSGE, generation)
}

func (q *qp) ECE() (vendor, options uint32) { return 0, 0 }
func (q *qp) SetECE(uint32) bool            { return false }

func (q *qp) Modify() (cmd ioctl.WriteExModifyQp, ok bool) { return cmd, false }

// Moved empties the queues at RESET. The phase of sends goes on, as in libefa.
func (q *qp) Moved(to uapi.IbQpState) uint32 {
	if to == uapi.IB_QPS_RESET {
		q.sq.reset()
		q.rq.reset()
	}
	return uint32(q.number)
}

// QueryMask returns the attributes that the driver can report. The driver refuses queries of
// other attributes.
func (q *qp) QueryMask() uapi.IbQpAttrMask {
	return uapi.IB_QP_STATE | uapi.IB_QP_PKEY_INDEX | uapi.IB_QP_PORT | uapi.IB_QP_QKEY | uapi.IB_QP_SQ_PSN | uapi.IB_QP_CAP | uapi.IB_QP_RNR_RETRY
}

// DataOrder returns the device's order, which is the same for all queue pairs.
func (q *qp) DataOrder(uint32, uapi.IbUverbsWrOpcode) (provider.DataOrder, error) {
	if q.ctx.has(uapi.EFA_QUERY_DEVICE_CAPS_DATA_POLLING_128) {
		return provider.DataInOrder128, nil
	}
	return provider.DataUnordered, nil
}

func (q *qp) Release() {
	q.ctx.qps.leave(q)
	unmap(&q.sq.device)
	unmap(&q.sq.bellPage)
	if q.sq.stageMem != nil {
		ioctl.Munmap(q.sq.stageMem)
		q.sq.stageMem = nil
	}
	q.sq.requests.close()
	unmap(&q.rq.mem)
	unmap(&q.rq.bellPage)
	q.rq.requests.close()
}
