package efa

import (
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
)

// A recvRing is a receive queue: a ring of descriptors. A receive has a descriptor for each of
// its buffers.
type recvRing struct {
	requests
	ring   []recvDesc
	bell   *uint32
	mask   uint32 // len(ring)-1
	maxSGE int    // 0 if the QP can't receive
	pos    uint32 // position of the next descriptor

	mem, bellPage []byte
}

func (r *recvRing) reset() {
	r.pos = 0
	r.requests.reset()
}

func (q *qp) PostRecv(wrs []provider.RecvWR) (n int, err error) {
	r := &q.rq
	for n < len(wrs) {
		if err = r.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		mmio.Publish(r.bell, r.pos&0xffff)
	}
	return n, err
}

func (r *recvRing) put(wr *provider.RecvWR) error {
	switch {
	case !r.room():
		return provider.ErrQueueFull
	case len(wr.SGL) == 0:
		return provider.ErrEmptyRecv
	case len(wr.SGL) > r.maxSGE:
		return provider.ErrTooManySGEs
	case provider.TooLong(wr.SGL):
		return provider.ErrRecvTooLong
	}
	req, number := r.take()
	req.id, req.busy = wr.WRID, true
	word := uint64(number) | recvFirst
	for i := range wr.SGL {
		g := &wr.SGL[i]
		// No message is longer than a descriptor's maximum.
		word |= uint64(min(g.Length, maxRecvPiece))<<recvLength | uint64(g.LKey&keyMask)<<recvKey
		if i == len(wr.SGL)-1 {
			word |= recvLast
		}
		r.ring[r.pos&r.mask] = recvDesc{g.Addr, word}
		r.pos++
		word = 0
	}
	return nil
}
