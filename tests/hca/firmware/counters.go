package firmware

import "github.com/goverbs/goverbs/tests/hca/ifc"

func (h *HCA) allocCounter(in, out ifc.View) Status { return alloc(&h.counters, out, "counter_set_id") }
func (h *HCA) deallocCounter(in, out ifc.View) Status {
	return dealloc(&h.counters, in.Get("counter_set_id"))
}

func (h *HCA) queryCounter(in, out ifc.View) Status {
	if h.counters.items[uint32(in.Get("counter_set_id"))] == nil {
		return BadRes
	}
	return OK
}
