package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Rate limits of send queues are entries of a table, which queues name by an index. Index 0
// means none.

const (
	paces   = 128
	minPace = 1 // kb/s
	maxPace = 100 << 20
)

func (h *HCA) setPaceLimit(in, out ifc.View) Status {
	index := in.Get("rate_limit_index")
	p := transport.Pace{Rate: uint32(in.Get("ctx.rate_limit")), Burst: uint32(in.Get("ctx.burst_upper_bound"))}
	if index == 0 || index >= paces || p.Rate > maxPace || p.Rate == 0 && p.Burst != 0 {
		return BadParam
	}
	if p.Rate == 0 {
		delete(h.paces, index)
		return OK
	}
	h.paces[index] = p
	return OK
}
