package firmware

import (
	"github.com/goverbs/goverbs/tests/hca/transport"
)

// steer finds the receive queues of a frame, by the flow tables.
func (h *HCA) steer(to []transport.Delivery, f transport.Frame) []transport.Delivery {
	if h.root == nil || len(f.Data) == 0 {
		return to
	}
	kind, disabled := uint64(selfUnicast), "disable_uc_local_lb"
	if f.Data[0]&1 != 0 {
		kind, disabled = selfMulticast, "disable_mc_local_lb"
	}
	if f.Domain != 0 && h.vport.context.Flag(disabled) {
		return to
	}
	h.hits = h.root.Steer(h.hits[:0], f.Data)
	for _, hit := range h.hits {
		t := h.tirs.items[hit.Receiver]
		if t == nil || f.Domain == t.domain && t.selfLB&kind == 0 {
			continue
		}
		d := transport.Delivery{RQN: t.rqn, Tag: hit.Tag}
		if t.table != nil {
			d.Hash, d.HashType = t.hash.Of(f.Data)
			d.RQN = t.table.rqns[d.Hash%uint32(len(t.table.rqns))]
		}
		to = append(to, d)
	}
	return to
}
