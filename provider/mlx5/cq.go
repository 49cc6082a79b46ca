package mlx5

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

type cq struct {
	ctx  *context
	resp *uapi.Mlx5IbCreateCqResp

	cqRing
	next   uint32  // index of the next CQE; it increases without wrapping at the ring's end
	lap    uint32  // next's round of the ring
	offset uintptr // next's offset in the ring (a pointer would cost a write barrier)
	record *record
	number uint32
	last   *resource // the resource of the previous CQE
	credit credit    // of last
	v1     bool      // CQEs have user indices
	fields provider.Fields
	format wqe.MiniFormat
	// realTime: timestamps are seconds and nanoseconds of the adapter's real-time clock.
	realTime bool
	// external: the program polls the ring directly (mlx5dv.CQQueue).
	external atomic.Bool
	freed    freed // WQEs of SRQs to free

	resized cqRing // the new ring during a Resize; also after a failed one whose ring the adapter uses
	broken  error  // why no more of the ring can be read; returned after its last completion
}

// A cqRing is a ring of CQEs.
type cqRing struct {
	buf    buffer
	ring   []wqe.CQE // a CQE of 128 bytes takes two elements
	mask   uint32    // CQEs-1
	log    uint32    // logarithm of the number of CQEs
	stride uint32    // 1, or 2 for CQEs of 128 bytes
}

// newRing makes a ring for n completions. It has one extra entry, which distinguishes a
// full ring from an overrun one.
func newRing(n, stride uint32) (r cqRing, err error) {
	count := roundUp(int(n) + 1)
	r = cqRing{mask: uint32(count - 1), log: uint32(bits.TrailingZeros(uint(count))), stride: stride}
	if r.buf, err = newBuffer(count * int(stride) * wqe.CQESize); err != nil {
		return cqRing{}, err
	}
	r.ring = r.buf.cqes(count * int(stride))
	for i := range uint32(count) {
		r.at(i).Clear()
	}
	return r, nil
}

// at returns the CQE with an index: of a CQE of 128 bytes, the second half.
func (r *cqRing) at(i uint32) *wqe.CQE { return &r.ring[(i&r.mask)*r.stride+r.stride-1] }

// round returns the number of times that the ring has wrapped before an index.
func (r *cqRing) round(i uint32) uint32 { return i >> (r.log & 31) }

// seek makes the CQE with an index the next one.
func (q *cq) seek(i uint32) { q.next, q.offset, q.lap = i, q.offsetOf(q.at(i)), q.round(i) }

func (r *cqRing) offsetOf(e *wqe.CQE) uintptr {
	return uintptr(unsafe.Pointer(e)) - uintptr(unsafe.Pointer(unsafe.SliceData(r.ring)))
}

// head returns the next CQE.
func (q *cq) head() *wqe.CQE {
	return (*wqe.CQE)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(q.ring)), q.offset))
}

func (c *context) NewCQ(cmd ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	q := &cq{ctx: c, v1: c.cqeVersion == cqeVersion1, fields: init.Fields}
	q.realTime = c.realTime && init.Fields&provider.FieldWallClock != 0 && init.Fields&provider.FieldTimestamp == 0
	if init.Fields&^allFields != 0 || init.Fields&provider.FieldWallClock != 0 && !q.realTime && !c.wall.open(c.file) {
		return nil, provider.ErrNoField
	}
	req := cmd.Mlx5().In()
	if q.realTime {
		req.Flags |= uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS)
	}
	var err error
	stride := uint32(1)
	if init.CQESize == 2*wqe.CQESize {
		stride = 2
	}
	if q.cqRing, err = newRing(init.CQE, stride); err == nil {
		q.record, err = c.records.take()
	}
	if err != nil {
		q.Release()
		return nil, err
	}
	q.seek(0)
	req.BufAddr, req.DbAddr, req.CqeSize = q.buf.addr(), q.record.addr(), q.stride*wqe.CQESize
	if q.format = wqe.MiniFormat(init.Compression); q.format != 0 {
		req.CqeCompEn, req.CqeCompResFormat = 1, init.Compression
	}
	if c.uars.cqObject {
		if c.uars.cqPage <= 0xffff {
			req.Flags |= uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)
			req.UarPageIndex = uint16(c.uars.cqPage)
		} else {
			cmd.Mlx5UarIndex(c.uars.cqPage)
		}
	}
	if x, ok := init.Extra.(driverapi.MLX5CQOptions); ok && x.Pad {
		req.Flags |= uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD)
	}
	q.resp = cmd.Mlx5().Out()
	return q, nil
}

func (q *cq) Adopt(uint32) error {
	q.number, q.resp = q.resp.Cqn, nil
	return nil
}

// The arming commands of the doorbell (MLX5_CQ_DB_REQ_NOT*).
const armSolicited = 1 << 24

// Arm writes the consumer index to the record and rings the doorbell. The number of events
// identifies the arming: the adapter accepts each number once.
func (q *cq) Arm(solicitedOnly bool, events uint32) error {
	command := events&3<<28 | q.next&0xffffff
	if solicitedOnly {
		command |= armSolicited
	}
	record, value := &q.record[cqArmRecord], bits.ReverseBytes64(uint64(command)<<32|uint64(q.number))
	if u := &q.ctx.uars; u.cqObject {
		mmio.DoorbellUncached(record, swap32(command), u.arm(), value)
	} else {
		mmio.Doorbell(record, swap32(command), u.arm(), value)
	}
	return nil
}

// Forget drops the QP's completions, and closes the gaps.
func (q *cq) Forget(p provider.QP) {
	if gone := p.(*qp); gone.init.Type != uapi.IB_UVERBS_QPT_XRC_TGT {
		q.forget(&gone.resource)
	}
}

func (q *cq) ForgetSRQ(p provider.SRQ) { q.forget(&p.(*srq).resource) }

func (q *cq) forget(gone *resource) {
	if q.last == gone {
		q.last = nil
	}
	if q.external.Load() {
		return // the program owns the entries and the consumer index
	}
	end := q.next
	for end-q.next <= q.mask {
		tail := q.at(end).Load()
		if !tail.Ready(q.round(end)) {
			break
		}
		mmio.FromDevice()
		if tail.Compressed() {
			q.expand(end, q.format)
		}
		end++
	}
	to := end
	for i := end; i != q.next; {
		i--
		e := q.at(i)
		if q.belongsTo(e, gone) {
			if s, at := gone.srq, e.Load().Counter(); s != nil && isReceive(e.Load().Opcode()) && int(at) < len(s.ids) {
				q.freed.add(s, at)
			}
			continue
		}
		if to--; to != i {
			q.move(to, i)
		}
	}
	q.freed.publish()
	if to != q.next {
		q.seek(to)
		mmio.Publish(&q.record[cqIndexRecord], swap32(q.next&0xffffff))
	}
}

// belongsTo reports whether a CQE belongs to r. The receives of a QP whose SRQ matches tags
// belong to the SRQ.
func (q *cq) belongsTo(e *wqe.CQE, r *resource) bool {
	if !q.v1 {
		return e.QPN() == r.number && !(r.qp != nil && r.srq != nil && r.srq.tags != nil && !isRequester(e.Load().Opcode()))
	}
	return e.UserIndex() == r.number
}

func isRequester(op wqe.CQEOpcode) bool {
	return op == wqe.CQERequester || op == wqe.CQERequesterError
}

func isReceive(op wqe.CQEOpcode) bool {
	return op >= wqe.CQEResponderWrite && op <= wqe.CQEResponderInv || op == wqe.CQEResponderError
}

// move copies a CQE to another entry, without the owner bit.
func (q *cq) move(to, from uint32) {
	moveCQE(&q.cqRing, to, &q.cqRing, from)
}

func moveCQE(dst *cqRing, to uint32, src *cqRing, from uint32) {
	for half := range src.stride {
		*cqeBytes(&dst.ring[(to&dst.mask)*dst.stride+half]) = *cqeBytes(&src.ring[(from&src.mask)*src.stride+half])
	}
	dst.at(to).SetOwner(dst.round(to))
}

func (q *cq) Resize(cmd ioctl.WriteResizeCq, cqe uint32) (err error) {
	if q.broken != nil {
		return q.broken
	}
	q.dropResize() // of a Resize that the kernel has refused
	if q.resized, err = newRing(cqe, q.stride); err != nil {
		return err
	}
	req := cmd.Mlx5().In()
	req.BufAddr, req.CqeSize = q.resized.buf.addr(), uint16(q.stride*wqe.CQESize)
	return nil
}

var errNoResizeCQE = errors.New("mlx5: the adapter didn't mark where the resized completion queue begins: create another CQ")

// Remap copies the completions in the old ring to the new one, up to the mark with which
// the adapter ends the old ring. Each moves one entry further, so that the adapter
// continues directly after them.
//
// Without the mark the CQ is unusable: the adapter writes to the new ring, at an unknown
// position. The new ring stays allocated for the adapter.
func (q *cq) Remap() error {
	if q.resized.mask == q.mask {
		q.dropResize() // for the kernel, the size has not changed
		return nil
	}
	end, ok := q.findMark()
	if !ok {
		q.broken = errNoResizeCQE
		if end-q.next <= q.mask { // the adapter doesn't use the old ring
			q.at(end).End(q.round(end))
		}
		return q.broken
	}
	for i := q.next; i != end; i++ {
		moveCQE(&q.resized, i+1, &q.cqRing, i)
	}
	q.cqRing, q.resized = q.resized, q.cqRing
	q.dropResize()
	q.seek(q.next + 1)
	// The mark counts as a completion, which is consumed now. rdma-core updates the
	// consumer index only in the next poll. Until then the adapter takes the queue for
	// fuller than it is.
	mmio.Publish(&q.record[cqIndexRecord], swap32(q.next&0xffffff))
	return nil
}

// findMark returns the index of the adapter's mark or, if there is none, of the end of
// the completions. It expands compressed completions.
func (q *cq) findMark() (at uint32, ok bool) {
	for at = q.next; at-q.next <= q.mask; at++ {
		tail := q.at(at).Load()
		if !tail.Ready(q.round(at)) {
			break
		}
		mmio.FromDevice()
		if tail.Opcode() == wqe.CQEResize {
			return at, true
		}
		if tail.Compressed() && !q.expand(at, q.format) {
			break
		}
	}
	return at, false
}

// dropResize ends a Resize. It releases resized, the unused ring.
func (q *cq) dropResize() {
	q.resized.buf.release()
	q.resized = cqRing{}
}

func (q *cq) Release() {
	q.ctx.records.give(q.record)
	q.buf.release()
	q.resized.buf.release()
	q.record, q.ring = nil, nil
}
