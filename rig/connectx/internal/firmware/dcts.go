package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func dctBindings(c *transport.DCTContext) []binding {
	return []binding{
		{"user_index", &c.UserIndex}, {"cqn", &c.CQN}, {"counter_set_id", &c.CounterSet},
		{"atomic_mode", &c.AtomicMode}, {"rre", &c.RRE}, {"rwe", &c.RWE}, {"rae", &c.RAE},
		{"rlky", &c.RLKey}, {"cs_res", &c.CSRes}, {"min_rnr_nak", &c.MinRNRNak}, {"srqn_xrqn", &c.SRQN},
		{"pd", &c.PD}, {"dc_access_key", &c.DCAccessKey}, {"mtu", &c.MTU}, {"port", &c.Port},
		{"pkey_index", &c.PKeyIndex}, {"my_addr_index", &c.SGIDIndex}, {"hop_limit", &c.HopLimit},
		{"tclass", &c.TClass}, {"flow_label", &c.FlowLabel}, {"eth_prio", &c.Priority},
	}
}

func (h *HCA) createDCT(in, out ifc.View) Status {
	context := in.Sub("dct_context_entry")
	var c transport.DCTContext
	load(context, dctBindings(&c))
	pd, q := h.pds.items[c.PD], h.srqs[c.SRQN]
	completions, ok := h.cqUse(c.CQN)
	switch {
	case !h.caps.current[capGeneral].Flag("dct"):
		return BadOp
	case pd == nil || q == nil || !ok:
		return BadRes
	}
	number, err := h.engine.CreateDCT(c)
	if err != nil {
		return transportStatus(err)
	}
	target := &queuePair{context: slices.Clone(context.Data)}
	target.use(pd, completions, &q.object)
	h.dcts[number] = target
	out.Set("dctn", uint64(number))
	return OK
}

func (h *HCA) drainDCT(in, out ifc.View) Status {
	number := uint32(in.Get("dctn"))
	if h.dcts[number] == nil {
		return BadRes
	}
	return transportStatus(h.engine.DrainDCT(number))
}

func (h *HCA) destroyDCT(in, out ifc.View) Status {
	number := uint32(in.Get("dctn"))
	target := h.dcts[number]
	if target == nil {
		return BadRes
	}
	if err := h.engine.DestroyDCT(number); err != nil {
		return transportStatus(err)
	}
	target.release()
	delete(h.dcts, number)
	return OK
}

func (h *HCA) queryDCT(in, out ifc.View) Status {
	number := uint32(in.Get("dctn"))
	target := h.dcts[number]
	c, ok := h.engine.QueryDCT(number)
	if target == nil || !ok {
		return BadRes
	}
	context := out.Sub("dct_context_entry")
	copy(context.Data, target.context)
	store(context, dctBindings(&c))
	const active, draining = 0, 1
	context.Set("state", active)
	if c.Draining {
		context.Set("state", draining)
	}
	if h.ordered() {
		setBit(context.Data, dctDataInOrder)
	}
	context.Set("dc_access_key_violation_count", uint64(c.Violations))
	return OK
}
