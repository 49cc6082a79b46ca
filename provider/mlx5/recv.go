package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
)

// A recvQueue is a ring of scatter lists of one size.
//
// Those who post hold the QP's receive lock, those who poll that of its CQ:
// done is the one word between them.
type recvQueue struct {
	ring   []wqe.Segment
	shift  uint32 // of a WQE's segments
	mask   uint32 // WQEs-1
	ids    []uint64
	maxSGE int

	posted uint32
	record *record
	// held keeps the record back until the QP may receive: a raw packet's queue
	// would take packets in INIT already.
	held bool

	taken uint32 // receives that completed, as the poller counts them
	done  uint32 // and as it told
}

func (q *qp) PostRecv(wrs []provider.RecvWR) (n int, err error) {
	r := &q.rq
	for n < len(wrs) {
		if err = r.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 && !r.held {
		r.tell()
	}
	return n, err
}

func (r *recvQueue) put(wr *provider.RecvWR) error {
	if r.posted-atomic.LoadUint32(&r.done) >= uint32(len(r.ids)) {
		if r.ring == nil {
			return provider.ErrNoQueue
		}
		return provider.ErrQueueFull
	}
	if len(wr.SGL) > r.maxSGE {
		return provider.ErrTooManySGEs
	}
	at := r.posted & r.mask
	r.ids[at] = wr.WRID
	scatter(r.ring[at<<r.shift:], wr.SGL, r.maxSGE)
	r.posted++
	return nil
}

// scatter writes a list, closed if it is shorter than it may be.
func scatter(segs []wqe.Segment, sgl []provider.SGE, most int) {
	n := 0
	for i := range sgl {
		if sgl[i].Length != 0 {
			segs[n].Data(sgl[i].Length, sgl[i].LKey, sgl[i].Addr)
			n++
		}
	}
	if n < most {
		segs[n].End()
	}
}

// tell shows the device how far the queue is filled.
func (r *recvQueue) tell() {
	mmio.Publish(&r.record[recvRecord], swap32(r.posted&0xffff))
}

// reset empties the queue.
func (r *recvQueue) reset() {
	r.posted, r.taken = 0, 0
	atomic.StoreUint32(&r.done, 0)
	if r.record != nil {
		r.record[recvRecord] = 0
	}
}
