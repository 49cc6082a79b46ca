package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Fail makes the HCA report an internal error. It does nothing more until the driver
// resets it.
func (h *HCA) Fail() { h.seg.fatal.Store(true) }

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
