package firmware

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Fail makes the HCA report an internal error. It does nothing more until the driver
// resets it.
func (h *HCA) Fail() { h.seg.fatal.Store(true) }

// Pause makes the port's neighbor keep it from sending, or let it send again: by pause frames over
// Ethernet, by its credits over InfiniBand.
func (h *HCA) Pause(on bool) error {
	if on && !h.obeysPauses {
		return errors.New("the driver has told the port not to obey pause frames")
	}
	h.engine.Pause(h.c.Now(), on)
	return nil
}

// pauses returns how many pause frames have arrived. The neighbor repeats them.
func (h *HCA) pauses() uint64 {
	const every = time.Millisecond
	paused, _ := h.engine.Paused(h.c.Now())
	return uint64((paused + every - 1) / every)
}

// waits returns how many ticks an InfiniBand port had something to send, and no credits.
func (h *HCA) waits() uint64 {
	if h.c.Ethernet {
		return 0
	}
	_, waited := h.engine.Paused(h.c.Now())
	return uint64(waited / time.Microsecond)
}

// Remove removes the HCA from the bus, or puts a new one there. Reads of a removed HCA
// return all ones, and writes are lost.
func (h *HCA) Remove(gone bool) {
	h.Reset()
	h.seg.gone.Store(gone)
}

// Inject arms a fault of one QP.
func (h *HCA) Inject(qpn uint32, f transport.Fault) error { return h.engine.Inject(qpn, f) }

// Completions returns the counts of all CQs since the HCA was created.
func (h *HCA) Completions() cq.Counts { return h.completions }

// Resources returns the numbers of objects by kind.
func (h *HCA) Resources() map[string]int {
	return map[string]int{
		"pages": len(h.pages), "eq": len(h.eqs.items), "pd": len(h.pds.items),
		"xrcd": len(h.xrcds.items), "uar": len(h.uars.items), "counter": len(h.counters.items),
		"cq": len(h.cqs.items), "mkey": len(h.mkeys), "qp": len(h.qps), "dct": len(h.dcts), "sq": len(h.sqs),
		"srq": len(h.srqs), "uctx": len(h.users.items), "umem": len(h.umems.items),
		"rq": len(h.rqs), "td": len(h.domains.items), "tis": len(h.tiss.items), "rqt": len(h.rqts.items),
		"tir": len(h.tirs.items), "flow_table": len(h.tables.items), "flow": h.flows,
		"flow_counter": len(h.flowCounters.items),
	}
}
