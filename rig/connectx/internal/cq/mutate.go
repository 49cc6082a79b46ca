package cq

import (
	"time"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// ownEarly writes the last word of an entry, with its owner bit, and the rest only a moment
// later.
func (q *CQ) ownEarly(c *Completion, cqe []byte) {
	const moment = 300 * time.Microsecond
	bus.Store32(cqe[60:], uint32(c.WQECounter)<<16|uint32(c.Kind)<<4|uint32(q.owner(0)))
	for begin := time.Now(); time.Since(begin) < moment; {
	}
}
