package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// queueTable is an RQT: the receive queues among which a hash chooses.
type queueTable struct {
	object
	max  uint64
	rqns []uint32
}

// fill sets the queues that a context lists.
func (h *HCA) fill(t *queueTable, c ifc.View) Status {
	const receiveQueues = 0
	n := c.Get("rqt_actual_size")
	switch {
	case c.Get("list_q_type") != receiveQueues, c.Flag("rq_vhca_id_format"), n == 0, n > t.max:
		return BadParam
	}
	list := c.Data[min(c.Size(), len(c.Data)):]
	if n > uint64(len(list)/4) {
		return BadInLen
	}
	var rqns []uint32
	var queues []*object
	for i := range int(n) {
		rqn := uint32(ifc.View{Layout: ifc.Of("rq_num"), Data: list[4*i:]}.Get("rq_num"))
		q := h.rqs[rqn]
		if q == nil {
			return BadRes
		}
		rqns = append(rqns, rqn)
		queues = append(queues, &q.object)
	}
	t.release()
	t.use(queues...)
	t.rqns = rqns
	return OK
}

func (h *HCA) createRQT(in, out ifc.View) Status {
	c := listed(in, "rqt_context")
	t := &queueTable{max: c.Get("rqt_max_size")}
	if t.max > 1<<logMaxRQTSize {
		return LimitErr
	}
	if status := h.fill(t, c); status != OK {
		return status
	}
	number, ok := h.rqts.add(t)
	if !ok {
		t.release()
		return NoRes
	}
	out.Set("rqtn", uint64(number))
	return OK
}

// listed returns a context together with the list after it, to the end of the box.
func listed(v ifc.View, context string) ifc.View {
	c := v.Sub(context)
	from := min(v.Field(context).Offset/8, len(v.Data))
	return ifc.View{Layout: c.Layout, Data: v.Data[from:]}
}

func (h *HCA) modifyRQT(in, out ifc.View) Status {
	t := h.rqts.items[uint32(in.Get("rqtn"))]
	switch {
	case t == nil:
		return BadRes
	case !in.Flag("bitmask.rqn_list"):
		return BadParam
	}
	return h.fill(t, listed(in, "ctx"))
}

func (h *HCA) destroyRQT(in, out ifc.View) Status {
	return dealloc(&h.rqts, in.Get("rqtn"))
}

func (h *HCA) queryRQT(in, out ifc.View) Status {
	t := h.rqts.items[uint32(in.Get("rqtn"))]
	if t == nil {
		return BadRes
	}
	c := listed(out, "rqt_context")
	c.Set("rqt_max_size", t.max)
	c.Set("rqt_actual_size", uint64(len(t.rqns)))
	for i, rqn := range slices.All(t.rqns) {
		c.SetAt("rq_num", i, uint64(rqn))
	}
	return OK
}
