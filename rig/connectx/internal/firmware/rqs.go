package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// A receive queue without a QP has the same state numbers as such a send queue.
var rqStates = sqStates

// createRQ creates a receive queue without a QP, for Ethernet frames.
func (h *HCA) createRQ(in, out ifc.View) Status {
	context := in.Sub("ctx")
	wq := context.Sub("wq")
	var c transport.RQContext
	load(context, []binding{{"rlky", &c.RLKey}, {"cqn", &c.CQN}, {"user_index", &c.UserIndex}, {"counter_set_id", &c.CounterSet}})
	load(wq, []binding{{"log_wq_sz", &c.LogSize}, {"pd", &c.PD}, {"dbr_addr", &c.DBRAddr}, {"wq_signature", &c.WQSignature}})
	c.StripVLAN = !context.Flag("vsd")
	const cyclic = 1
	var stamped bool
	c.RealTime, stamped = stamps(h.caps.current[capGeneral].Get("rq_ts_format"), context.Get("ts_format"))
	stride := wq.Get("log_wq_stride")
	switch {
	case context.Flag("mem_rq_type"), context.Flag("hairpin"), context.Flag("scatter_fcs"), context.Flag("delay_drop_en"),
		!stamped, wq.Get("wq_type") != cyclic, wq.Flag("wq_umem_valid"), wq.Flag("dbr_umem_valid"),
		wq.Flag("shampo_enable"), stride < wqMinStride, 1<<stride > maxReceiveWQE:
		return BadParam
	case c.LogSize > logMaxQPSize:
		return LimitErr
	}
	c.LogStride = uint8(stride - wqMinStride)
	// The pages follow the layout.
	pas := in.Data[min(in.Size(), len(in.Data)):]
	b, status := buffer(pas, 1<<stride<<c.LogSize, uint(wq.Get("log_wq_pg_sz")), wq.Get("page_offset"))
	if status != OK {
		return status
	}
	c.Buffer = b
	completions := h.cqs.items[c.CQN]
	// Drivers set no PD for a queue that they never post to.
	pd := h.pds.items[c.PD]
	if completions == nil || pd == nil && c.PD != 0 {
		return BadRes
	}
	q := &queuePair{context: slices.Clone(context.Data[:min(context.Size(), len(context.Data))])}
	number, err := h.engine.CreateRQ(c)
	if err != nil {
		return transportStatus(err)
	}
	q.use(&completions.object)
	if pd != nil {
		q.use(pd)
	}
	h.rqs[number] = q
	out.Set("rqn", uint64(number))
	return OK
}

// Fields that MODIFY_RQ may change besides the state.
const (
	modifyVSD      = 1 << 1
	modifyCounters = 1 << 3
)

func (h *HCA) modifyRQ(in, out ifc.View) Status {
	number := uint32(in.Get("rqn"))
	from, fromOK := rqStates[in.Get("rq_state")]
	to, toOK := rqStates[in.Get("ctx.state")]
	mask := in.Get("modify_bitmask")
	now, ok := h.engine.QueryRQ(number)
	switch {
	case h.rqs[number] == nil || !ok:
		return BadRes
	case !fromOK || !toOK || mask&^(modifyVSD|modifyCounters) != 0:
		return BadParam
	}
	// A ready queue can be changed and stay ready.
	if from != to || from == transport.Err {
		if status := halfStatus(h.engine.ModifyRQ(number, from, to)); status != OK {
			return status
		}
	} else if now.State != from {
		return BadResState
	}
	if mask&modifyVSD != 0 {
		now.StripVLAN = !in.Flag("ctx.vsd")
	}
	if mask&modifyCounters != 0 {
		now.CounterSet = uint8(in.Get("ctx.counter_set_id"))
	}
	return halfStatus(h.engine.ChangeRQ(number, now.StripVLAN, now.CounterSet))
}

// halfStatus returns the status for an error of commands for queues without a QP.
func halfStatus(err error) Status {
	if status := transportStatus(err); status != BadQPState {
		return status
	}
	return BadResState
}

func (h *HCA) destroyRQ(in, out ifc.View) Status {
	number := uint32(in.Get("rqn"))
	q := h.rqs[number]
	switch {
	case q == nil:
		return BadRes
	case q.users > 0:
		return ResBusy
	}
	c, _ := h.engine.QueryRQ(number)
	if completions := h.cqs.items[c.CQN]; completions != nil {
		completions.Flush(h.c.Now())
	}
	if err := h.engine.DestroyRQ(number); err != nil {
		return transportStatus(err)
	}
	q.release()
	delete(h.rqs, number)
	return OK
}

func (h *HCA) queryRQ(in, out ifc.View) Status {
	number := uint32(in.Get("rqn"))
	c, ok := h.engine.QueryRQ(number)
	if !ok || h.rqs[number] == nil {
		return BadRes
	}
	context := out.Sub("rq_context")
	copy(context.Data, h.rqs[number].context)
	context.SetFlag("vsd", !c.StripVLAN)
	context.Set("counter_set_id", uint64(c.CounterSet))
	for number, state := range rqStates {
		if state == c.State {
			context.Set("state", number)
		}
	}
	return OK
}
