package cq

import (
	"time"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Actions of a hostile HCA.

// Forge writes an arbitrary entry. Only its owner bit is right.
func (q *CQ) Forge(cqe [64]byte, now time.Duration) {
	q.Flush(now)
	_, b := q.slot(0)
	if b == nil {
		return
	}
	last := uint32(cqe[60])<<24 | uint32(cqe[61])<<16 | uint32(cqe[62])<<8 | uint32(cqe[63]&^1|q.owner(0))
	copy(b[:60], cqe[:])
	bus.Store32(b[60:], last)
	q.producer = (q.producer + 1) & indexMask
	q.notify(1, true, now)
}

// Scribble writes a byte anywhere in the ring.
func (q *CQ) Scribble(at uint64, value byte) {
	size := q.c.Size.bytes() << q.c.LogSize
	if b := q.c.Buffer.Bytes(q.c.Memory, at%size, 1); b != nil {
		b[0] = value
	}
}
