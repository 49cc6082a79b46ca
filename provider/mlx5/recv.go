package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
)

// A recvQueue is a ring of scatter lists of one size.
//
// Posts hold the QP's receive lock, and polls hold the CQ's lock. Posts write receiver, and polls
// write done and disorder; both only read the other fields. As in a sendQueue, the written fields
// have cache lines of their own.
type recvQueue struct {
	ring   []wqe.Segment
	ids    []uint64
	shift  uint32 // logarithm of a WQE's size in bytes
	mask   uint32 // WQEs-1
	limit  uint32 // maximum number of outstanding receives
	maxSGE int
	record *record
	signed bool // WQEs begin with a signature
	qpn    uint32

	_ memorder.Apart
	receiver
	_    memorder.Apart
	done uint32 // completed receives
	disorder
	_ memorder.Apart
}

// A disorder is the polls' record of a queue whose receives complete in any order. The ring is
// at least twice as long as the maximum number of outstanding receives, unless that is one.
type disorder struct {
	marks  []uint64 // a bit for each completed WQE, from the oldest incomplete one on
	count  uint32   // completed receives
	oldest uint32   // the index of the first incomplete receive
}

// allowDisorder lets the receives complete in any order.
func (r *recvQueue) allowDisorder() {
	r.limit = max(r.limit/2, 1)
	r.marks = make([]uint64, r.mask/64+1)
}

// complete marks a WQE as completed. The count that it publishes never lets a post overwrite the
// oldest incomplete WQE, even if all others are complete.
func (r *recvQueue) complete(at uint32) {
	d := &r.disorder
	word, bit := &d.marks[at/64], uint64(1)<<(at%64)
	if *word&bit != 0 {
		return // the WQE was not posted again
	}
	*word |= bit
	d.count++
	for {
		at = d.oldest & r.mask
		word, bit = &d.marks[at/64], uint64(1)<<(at%64)
		if *word&bit == 0 {
			break
		}
		*word &^= bit
		d.oldest++
	}
	done := d.oldest + r.mask + 1 - r.limit
	if int32(done-d.count) > 0 {
		done = d.count
	}
	memorder.StoreRelease(&r.done, done)
}

// A receiver has the fields that posts of receives write.
type receiver struct {
	posted uint32
	seen   uint32 // done, as last loaded by a post
	// usual is the maximum number of outstanding receives for the short path of PostRecv:
	// 0 if the record is held, or if WQEs are signed.
	usual uint32
	// held: the record is not written until the QP may receive. Otherwise a raw packet QP
	// would receive packets even in INIT.
	held bool
}

// look is like sendQueue.look, for receives.
func (r *recvQueue) look(n int) bool {
	r.seen = atomic.LoadUint32(&r.done)
	return r.posted-r.seen+uint32(n) <= r.usual
}

// PostRecv takes a short path while receives have one piece of memory, and the shortest
// path for a single receive.
func (q *qp) PostRecv(wrs []provider.RecvWR) (int, error) {
	if len(wrs) != 1 || len(wrs[0].SGL) != 1 {
		return q.rq.postList(wrs)
	}
	r := &q.rq
	wr, sge, posted := &wrs[0], &wrs[0].SGL[0], r.posted
	if posted-r.seen >= r.usual || unusual(sge) {
		return r.postAgain(wrs)
	}
	at := posted & r.mask
	*r.id(at) = wr.WRID
	w := r.window(at)
	w[0].Data(sge.Length, sge.LKey, sge.Addr)
	if r.maxSGE > 1 {
		w[1].End()
	}
	r.posted = posted + 1
	r.publishFast()
	return 1, nil
}

// postAgain is like PostRecv, for a queue that seems full, or an unusual buffer.
//
//go:noinline
func (r *recvQueue) postAgain(wrs []provider.RecvWR) (int, error) { return r.postList(wrs) }

// unusual reports whether a buffer is empty, which the adapter reads as 2 GiB, or too long.
func unusual(sge *provider.SGE) bool { return int32(sge.Length) <= 0 }

func (r *recvQueue) postList(wrs []provider.RecvWR) (int, error) {
	posted := r.posted
	if posted-r.seen+uint32(len(wrs)) > r.usual && !r.look(len(wrs)) {
		return r.post(wrs, 0)
	}
	for i := range wrs {
		wr := &wrs[i]
		if len(wr.SGL) != 1 || unusual(&wr.SGL[0]) {
			r.posted = posted
			return r.post(wrs, i)
		}
		sge, at := &wr.SGL[0], posted&r.mask
		w := r.window(at)
		w[0].Data(sge.Length, sge.LKey, sge.Addr)
		if r.maxSGE > 1 {
			w[1].End()
		}
		*r.id(at) = wr.WRID
		posted++
	}
	r.posted = posted
	r.publishFast()
	return len(wrs), nil
}

// publishFast does as publish does, but is inlined on processors that don't reorder stores.
func (r *recvQueue) publishFast() {
	if mmio.StoresReorder {
		r.publish()
	} else {
		memorder.StoreRelease(&r.record[recvRecord], swap32(r.posted&0xffff))
	}
}

// hold sets whether the record is held back.
func (r *recvQueue) hold(on bool) {
	r.held, r.usual = on, 0
	if !on && !r.signed {
		r.usual = r.limit
	}
}

// post posts the receives from wrs[n] on. Earlier ones are already written.
func (r *recvQueue) post(wrs []provider.RecvWR, n int) (_ int, err error) {
	posted := r.posted
	if posted-r.seen+uint32(len(wrs)-n) > r.limit {
		r.seen = atomic.LoadUint32(&r.done)
	}
	room := r.limit - (posted - r.seen)
	for n < len(wrs) {
		wr := &wrs[n]
		if room == 0 {
			err = provider.ErrQueueFull
			if r.ring == nil {
				err = provider.ErrNoQueue
			}
			break
		}
		if len(wr.SGL) > r.maxSGE {
			err = provider.ErrTooManySGEs
			break
		}
		if provider.TooLong(wr.SGL) {
			err = provider.ErrRecvTooLong
			break
		}
		at := posted & r.mask
		r.ids[at] = wr.WRID
		w := r.window(at)
		i, end := uint32(0), uint32(r.maxSGE)
		if r.signed {
			i, end = 1, end+1
			clear(w[:end])
		}
		for j := range wr.SGL {
			if sge := &wr.SGL[j]; sge.Length != 0 {
				w[i&(maxSegments-1)].Data(sge.Length, sge.LKey, sge.Addr)
				i++
			}
		}
		if i < end {
			w[i&(maxSegments-1)].End()
		}
		if r.signed {
			w[0].SignRecv(w[:1+len(wr.SGL)], r.qpn, uint16(posted))
		}
		posted++
		room--
		n++
	}
	r.posted = posted
	if n > 0 && !r.held {
		r.publish()
	}
	return n, err
}

// list returns a receive's scatter list.
func (r *recvQueue) list(at uint32) []wqe.Segment {
	w := r.window(at)
	if r.signed {
		return w[1 : 1+r.maxSGE]
	}
	return w[:r.maxSGE]
}

// publish publishes the queue's fill level in the record.
func (r *recvQueue) publish() {
	mmio.Publish(&r.record[recvRecord], swap32(r.posted&0xffff))
}

// reset empties the queue.
func (r *recvQueue) reset() {
	r.posted, r.seen = 0, 0
	r.count, r.oldest = 0, 0
	clear(r.marks)
	atomic.StoreUint32(&r.done, 0)
	if r.record != nil {
		r.record[recvRecord] = 0
	}
}
