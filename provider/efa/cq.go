package efa

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

type cq struct {
	ctx  *context
	resp *uapi.EfaIbvCreateCqResp

	rings   []cqRing // the device chooses one for each queue
	current int      // the ring to poll next
	last    *qp      // the QP of the last completion
	gone    []span   // completions to drop

	sgid     bool // completions from unknown senders have the senders' GIDs
	consumed uint32
	events   uint32 // the number of events at the last Arm
	bell     *uint32
	mem      []byte
	bellPage []byte
	mask     uint32 // entries of a ring, less 1
	digits   uint8  // binary digits of mask
}

// A cqRing is one of a CQ's rings.
type cqRing struct {
	entries []cqe
	next    uint32 // the position of the next completion
	seen    uint32 // completions before this position have arrived, and a barrier has followed the loads of their heads
}

// A span has the completions of a QP that was reset or destroyed, in one ring, before a position.
type span struct {
	number uint16
	ring   int
	until  uint32
}

var (
	errPlainCQ   = fmt.Errorf("%w: efa's completions have one size and can't be compressed", provider.ErrNotSupported)
	errCQLength  = errors.New("efa: the kernel's completion queue is shorter than requested")
	errNoEvents  = fmt.Errorf("%w: the device has no completion events, or the completion queue was created with PollOnly", provider.ErrNotSupported)
	errSolicited = fmt.Errorf("%w: efa has no solicited events", provider.ErrNotSupported)
	errResize    = fmt.Errorf("%w: efa's completion queues can't be resized", provider.ErrNotSupported)
)

// maxCQE is more than any device has.
const maxCQE = 1 << 24

func (c *context) NewCQ(cmd ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	switch {
	case init.CQESize != 0 || init.Compression != 0:
		return nil, errPlainCQ
	case init.Fields&^(provider.FieldSGID|provider.FieldUnsolicited) != 0,
		init.Fields&provider.FieldSGID != 0 && !c.has(uapi.EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID),
		init.Fields&provider.FieldUnsolicited != 0 && !c.has(uapi.EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV):
		return nil, provider.ErrNoField
	case init.CQE > maxCQE:
		return nil, exceeds("MaxCQE", init.CQE, maxCQE)
	}
	q := &cq{ctx: c}
	req := cmd.Efa().In()
	if init.Fields&provider.FieldSGID != 0 {
		q.sgid = true
		req.Flags |= uapi.EFA_CREATE_CQ_WITH_SGID
	}
	if init.Channel && c.has(uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS) {
		req.Flags |= uapi.EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL
	}
	init.CQE = uint32(ceilPower(int(init.CQE)))
	q.mask = init.CQE - 1
	q.digits = uint8(bits.Len32(q.mask))
	req.CqEntrySize, req.NumSubCqs = cqeSize, uint16(c.completions)
	q.resp = cmd.Efa().Out()
	return q, nil
}

func (q *cq) Adopt(uint32) (err error) {
	resp := *q.resp
	q.resp = nil
	n := uint64(q.mask) + 1
	if size := n * cqeSize * uint64(q.ctx.completions); resp.QMmapSize < size || resp.QMmapSize > 2*size+uint64(os.Getpagesize()) {
		return errCQLength
	}
	if q.mem, err = q.ctx.file.MmapReadOnly(resp.QMmapKey, int(resp.QMmapSize)); err != nil {
		return err
	}
	q.rings = make([]cqRing, q.ctx.completions)
	all := unsafe.Slice((*cqe)(unsafe.Pointer(unsafe.SliceData(q.mem))), n*uint64(len(q.rings)))
	for i := range q.rings {
		q.rings[i].entries = all[uint64(i)*n : uint64(i+1)*n]
	}
	if resp.CompMask&uapi.EFA_CREATE_CQ_RESP_DB_OFF != 0 {
		if q.bellPage, err = mapDoorbell(q.ctx.file, resp.DbMmapKey, resp.DbOff); err != nil {
			return err
		}
		q.bell = (*uint32)(unsafe.Pointer(&q.bellPage[resp.DbOff]))
	}
	return nil
}

// ready returns a ring's next entry, and reports whether it has a new completion. The phase
// of the first round is 1.
func (q *cq) ready(r *cqRing) (*cqe, bool) {
	e := &r.entries[r.next&q.mask]
	round := r.next >> (q.digits & 31)
	return e, (e.head()>>cqePhaseShift^round)&1 != 0
}

// advanceSeen moves seen past the completions that have arrived, up to 16, with one barrier for all of
// them. The caller has seen the first.
func (q *cq) advanceSeen(r *cqRing) {
	const most = 16
	ahead := *r
	for ahead.next++; ahead.next-r.next < most; ahead.next++ {
		if _, ok := q.ready(&ahead); !ok {
			break
		}
	}
	mmio.FromDevice()
	r.seen = ahead.next
}

func (q *cq) Poll(wc []provider.WC) (n int, err error) {
	if len(q.rings) == 1 { // the usual case
		if _, ok := q.ready(&q.rings[0]); !ok {
			return 0, nil
		}
	}
	before, ok := q.consumed, true
	for n < len(wc) {
		if ok, err = q.poll(&wc[n], nil, n > 0); !ok {
			break
		}
		n++
	}
	if q.bell != nil && q.consumed != before {
		q.ring(0)
	}
	return n, err
}

// PollEx is like Poll, with the fields that only efa has. Only SGID must be selected when the
// CQ is created.
func (q *cq) PollEx(wc []provider.WCEx) (n int, err error) {
	before, ok := q.consumed, true
	for n < len(wc) {
		wc[n] = provider.WCEx{}
		if ok, err = q.poll(&wc[n].WC, &wc[n], n > 0); !ok {
			break
		}
		n++
	}
	if q.bell != nil && q.consumed != before {
		q.ring(0)
	}
	return n, err
}

// poll moves the next completion into wc, and reports whether there is one. A completion that
// can't be reported is an error. But with after, when other completions precede it, it stays
// in the ring.
func (q *cq) poll(wc *provider.WC, ex *provider.WCEx, after bool) (bool, error) {
	for idle := 0; idle < len(q.rings); q.rotate() {
		r := &q.rings[q.current]
		e, ok := q.ready(r)
		if !ok {
			idle++
			continue
		}
		if mmio.LoadsReorder && r.next == r.seen {
			q.advanceSeen(r)
		}
		idle = 0
		why := past
		if len(q.gone) == 0 || !q.forgotten(e) {
			if why = q.convert(e, wc, ex); why > past && after {
				return false, nil // the next Poll returns the error
			}
		}
		r.next++
		q.consumed++
		switch {
		case why == reported:
			q.rotate()
			return true, nil
		case why > past:
			q.rotate()
			return false, &provider.CQEError{Why: why.String(), CQE: e.raw()}
		}
	}
	return false, nil
}

func (q *cq) rotate() {
	if q.current++; q.current >= len(q.rings) {
		q.current = 0
	}
}

// An outcome is the result of handling a completion.
type outcome uint8

const (
	reported outcome = iota
	past             // of a former QP
	unknownQueue
	unknownQP
	unknownRequest
	unknownOperation
)

func (o outcome) String() string {
	switch o {
	case unknownQueue:
		return "is of neither a send queue nor a receive queue"
	case unknownQP:
		return "is about a queue pair that has no queue on this completion queue"
	case unknownRequest:
		return "is about a request that the queue doesn't have"
	}
	return "has an unknown operation"
}

// convert converts a completion to a WC, and frees its request.
func (q *cq) convert(e *cqe, wc *provider.WC, ex *provider.WCEx) outcome {
	word := e[0]
	qpn := uint16(word >> cqeQPNShift)
	p := q.last
	if p == nil || p.number != qpn {
		if p = q.ctx.qps.find(qpn); p == nil {
			return unknownQP
		}
	}
	number, op := uint16(word), word>>cqeOpShift&7
	switch word >> cqeQueueShift & 3 {
	case sendQueue:
		if p.sendCQ != q {
			return unknownQP
		}
		req := p.sq.find(number)
		if req == nil {
			if p.sq.fromPrevious(number) {
				return past
			}
			return unknownRequest
		}
		if op > opWrite {
			return unknownOperation
		}
		*wc = provider.WC{WRID: req.id, Opcode: uint32(req.opcode), QPNum: uint32(qpn)}
		if req.opcode == uint8(uapi.IB_UVERBS_WC_RDMA_READ) {
			wc.ByteLen = req.length
		}
		p.sq.give(number)
	case recvQueue:
		if p.recvCQ != q {
			return unknownQP
		}
		if op != opSend && op != opWrite {
			return unknownOperation
		}
		source := e[1]
		*wc = provider.WC{
			Opcode: uint32(uapi.IB_WC_RECV), QPNum: uint32(qpn), ByteLen: uint32(word >> cqeLengthShift),
			SrcQP: uint32(uint16(source >> 16)), SLID: uint16(source),
		}
		if op == opWrite {
			wc.Opcode = uint32(uapi.IB_WC_RECV_RDMA_WITH_IMM)
			wc.ByteLen |= uint32(uint16(e[2])) << 16
		}
		if word&cqeImm != 0 {
			wc.Flags, wc.Ex = uint32(uapi.IB_WC_WITH_IMM), bits.ReverseBytes32(uint32(source>>32))
		}
		if word&cqeUnsolicited != 0 {
			if !p.unsolicited || op != opWrite {
				return unknownRequest
			}
			break
		}
		req := p.rq.find(number)
		if req == nil {
			if p.rq.fromPrevious(number) {
				return past
			}
			return unknownRequest
		}
		wc.WRID = req.id
		p.rq.give(number)
	default:
		return unknownQueue
	}
	q.last = p
	if status := uint8(word >> cqeStatusShift); status != statusOK {
		wc.Status, wc.VendorErr = uint32(statusOf(status)), uint32(status)
		wc.Flags, wc.Ex = 0, 0
	}
	if ex != nil && wc.Status == uint32(uapi.IB_WC_SUCCESS) {
		ex.Unsolicited = word&cqeUnsolicited != 0
		if q.sgid && wc.Opcode == uint32(uapi.IB_WC_RECV) && wc.SLID == unknownAH {
			binary.LittleEndian.PutUint64(ex.SGID[:], e[2])
			binary.LittleEndian.PutUint64(ex.SGID[8:], e[3])
		}
	}
	return reported
}

// statusOf translates the status of a completion.
func statusOf(status uint8) uapi.IbWcStatus {
	switch status {
	case statusOK:
		return uapi.IB_WC_SUCCESS
	case statusFlushed:
		return uapi.IB_WC_WR_FLUSH_ERR
	case statusQPInternal, statusUnsupportedOp, statusInvalidAH:
		return uapi.IB_WC_LOC_QP_OP_ERR
	case statusInvalidLKey:
		return uapi.IB_WC_LOC_PROT_ERR
	case statusLocalLength:
		return uapi.IB_WC_LOC_LEN_ERR
	case statusRemoteAddress:
		return uapi.IB_WC_REM_ACCESS_ERR
	case statusRemoteAbort:
		return uapi.IB_WC_REM_ABORT_ERR
	case statusRemoteQPN:
		return uapi.IB_WC_REM_INV_RD_REQ_ERR
	case statusRemoteRNR:
		return uapi.IB_WC_RNR_RETRY_EXC_ERR
	case statusRemoteLength, statusFeatureMismatch:
		return uapi.IB_WC_REM_INV_REQ_ERR
	case statusRemoteStatus:
		return uapi.IB_WC_BAD_RESP_ERR
	case statusUnresponsive, statusUnreachable:
		return uapi.IB_WC_RESP_TIMEOUT_ERR
	case statusUnknownPeer:
		return uapi.IB_WC_REM_OP_ERR
	}
	return uapi.IB_WC_GENERAL_ERR
}

// The doorbell of a CQ that has events (efa_io_regs_defs.h).
const (
	bellConsumed    = 0xffff
	bellEventsShift = 29 // 2 bits
	bellArm         = 1 << 31
)

// ring rings the doorbell with the number of consumed completions.
func (q *cq) ring(arm uint32) {
	if mmio.LoadsReorder {
		mmio.FromDevice() // the device may reuse the entries
	}
	mmio.Publish(q.bell, q.consumed&bellConsumed|q.events&3<<bellEventsShift|arm)
}

// Arm makes the device send an event. The number of events identifies the arming.
func (q *cq) Arm(solicitedOnly bool, events uint32) error {
	switch {
	case q.bell == nil:
		return errNoEvents
	case solicitedOnly:
		return errSolicited
	}
	q.events = events
	q.ring(bellArm)
	return nil
}

// Forget records which completions in the rings are the QP's, because the rings can't be written.
func (q *cq) Forget(p provider.QP) {
	gone := p.(*qp)
	if q.last == gone {
		q.last = nil
	}
	for i := range q.rings {
		r := q.rings[i]
		found := false
		for end := r.next + q.mask + 1; r.next != end; r.next++ {
			e, ok := q.ready(&r)
			if !ok {
				break
			}
			if mmio.LoadsReorder {
				mmio.FromDevice()
			}
			if uint16(e[0]>>cqeQPNShift) == gone.number {
				found = true
			}
		}
		if found {
			q.gone = append(q.gone, span{gone.number, i, r.next})
		}
	}
}

// forgotten reports whether e, the next completion of the current ring, must be dropped. It
// removes the spans that have ended.
func (q *cq) forgotten(e *cqe) bool {
	next, number := q.rings[q.current].next, uint16(e[0]>>cqeQPNShift)
	drop := false
	left := q.gone[:0]
	for _, s := range q.gone {
		if s.ring == q.current && int32(s.until-next) <= 0 {
			continue
		}
		drop = drop || s.ring == q.current && s.number == number
		left = append(left, s)
	}
	q.gone = left
	return drop
}

func (q *cq) ForgetSRQ(provider.SRQ) {}

func (q *cq) Resize(ioctl.WriteResizeCq, uint32) error { return errResize }
func (q *cq) Remap() error                             { return nil }

func (q *cq) Release() {
	unmap(&q.mem)
	unmap(&q.bellPage)
}
