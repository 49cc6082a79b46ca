package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/steering"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// steer finds the receive queues of a frame in the flow tables.
func (h *HCA) steer(to []transport.Delivery, f transport.Frame) []transport.Delivery {
	if len(f.Data) == 0 {
		return to
	}
	if f.Domain == 0 {
		to = h.sniff(to, tableSniffRx, f)
	} else {
		to = h.sniff(to, tableSniffTx, f)
	}
	root := h.roots[tableReceive]
	kind, disabled := uint64(selfUnicast), "disable_uc_local_lb"
	if f.Data[0]&1 != 0 {
		kind, disabled = selfMulticast, "disable_mc_local_lb"
	}
	if root == nil || f.Domain != 0 && h.vport.context.Flag(disabled) {
		return to
	}
	h.hits = root.Steer(h.hits[:0], f.Data)
	for _, hit := range h.hits {
		if t := h.tirs.items[hit.Receiver]; t != nil && (f.Domain != t.domain || t.selfLB&kind != 0) {
			to = append(to, t.delivery(hit, f.Data))
		}
	}
	return to
}

// sniff finds the receive queues that get a copy.
func (h *HCA) sniff(to []transport.Delivery, kind uint64, f transport.Frame) []transport.Delivery {
	root := h.roots[kind]
	if root == nil {
		return to
	}
	h.hits = root.Steer(h.hits[:0], f.Data)
	for _, hit := range h.hits {
		if t := h.tirs.items[hit.Receiver]; t != nil {
			to = append(to, t.delivery(hit, f.Data))
		}
	}
	return to
}

// delivery returns the queue to which a receiver sends a frame.
func (t *receiver) delivery(hit steering.Hit, frame []byte) transport.Delivery {
	d := transport.Delivery{RQN: t.rqn, Tag: hit.Tag}
	if t.table != nil {
		d.Hash, d.HashType = t.hash.Of(frame)
		d.RQN = t.table.rqns[d.Hash%uint32(len(t.table.rqns))]
	}
	return d
}
