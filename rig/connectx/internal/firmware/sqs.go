package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// States of a send queue without a QP.
const (
	sqReset = 0
	sqReady = 1
	sqError = 3
)

var sqStates = map[uint64]transport.State{
	sqReset: transport.Reset, sqReady: transport.RTS, sqError: transport.Err,
}

// modifyPace of modify_bitmask selects packet_pacing_rate_limit_index.
const modifyPace = 1

// logSendBlock is the logarithm of a send block's size.
const logSendBlock = 6

// createSQ creates a send queue without a QP. Drivers use these to test write combining
// and to send Ethernet frames.
func (h *HCA) createSQ(in, out ifc.View) Status {
	context := in.Sub("ctx")
	wq := context.Sub("wq")
	var c transport.SQContext
	load(context, []binding{{"rlky", &c.RLKey}, {"cqn", &c.CQN}, {"user_index", &c.UserIndex}})
	load(wq, []binding{{"log_wq_sz", &c.LogSize}, {"pd", &c.PD}, {"uar_page", &c.UAR}, {"dbr_addr", &c.DBRAddr}})
	const cyclic = 1
	var stamped bool
	c.RealTime, stamped = stamps(h.caps.current[capGeneral].Get("sq_ts_format"), context.Get("ts_format"))
	if wq.Get("wq_type") != cyclic || wq.Flag("wq_umem_valid") || wq.Flag("dbr_umem_valid") ||
		wq.Get("log_wq_stride") != logSendBlock || context.Flag("hairpin") || context.Flag("allow_multi_pkt_send_wqe") ||
		!stamped || context.Get("tis_lst_sz") > 1 {
		return BadParam
	}
	if c.LogSize > logMaxQPSize {
		return LimitErr
	}
	// The pages follow the layout.
	pas := in.Data[min(in.Size(), len(in.Data)):]
	b, status := buffer(pas, 1<<logSendBlock<<c.LogSize, uint(wq.Get("log_wq_pg_sz")), wq.Get("page_offset"))
	if status != OK {
		return status
	}
	c.Buffer, c.Port = b, 1
	completions := h.cqs.items[c.CQN]
	uar := h.uar(c.UAR)
	if completions == nil || uar == nil {
		return BadRes
	}
	q := &queuePair{context: slices.Clone(context.Data[:min(context.Size(), len(context.Data))])}
	q.use(&completions.object, uar)
	if context.Flag("tis_lst_sz") {
		t := h.tiss.items[uint32(context.Get("tis_num_0"))]
		if t == nil {
			q.release()
			return BadRes
		}
		q.use(&t.object)
		c.Domain = t.domain
		if h.caps.current[capEthernet].Get("wqe_inline_mode") == inlineL2 {
			c.MinInline = frame.Min
		}
	}
	// Drivers set no PD if no WQE will refer to memory.
	if c.PD != 0 {
		pd := h.pds.items[c.PD]
		if pd == nil {
			q.release()
			return BadRes
		}
		q.use(pd)
	}
	number, err := h.engine.CreateSQ(c)
	if err != nil {
		q.release()
		return transportStatus(err)
	}
	h.sqs[number] = q
	out.Set("sqn", uint64(number))
	return OK
}

func (h *HCA) modifySQ(in, out ifc.View) Status {
	number := uint32(in.Get("sqn"))
	from, fromOK := sqStates[in.Get("sq_state")]
	to, toOK := sqStates[in.Get("ctx.state")]
	switch {
	case h.sqs[number] == nil:
		return BadRes
	case !fromOK || !toOK || in.Get("modify_bitmask")&^modifyPace != 0:
		return BadParam
	}
	index := in.Get("ctx.packet_pacing_rate_limit_index")
	paces := in.Get("modify_bitmask") != 0
	if _, ok := h.paces[index]; paces && index != 0 && !ok {
		return BadRes
	}
	s := halfStatus(h.engine.ModifySQ(number, from, to))
	if s == OK && paces {
		s = transportStatus(h.engine.PaceSQ(number, h.paces[index]))
	}
	return s
}

func (h *HCA) destroySQ(in, out ifc.View) Status {
	number := uint32(in.Get("sqn"))
	q := h.sqs[number]
	if q == nil {
		return BadRes
	}
	c, _ := h.engine.QuerySQ(number)
	if completions := h.cqs.items[c.CQN]; completions != nil {
		completions.Flush(h.c.Now())
	}
	if err := h.engine.DestroySQ(number); err != nil {
		return transportStatus(err)
	}
	q.release()
	delete(h.sqs, number)
	return OK
}

func (h *HCA) querySQ(in, out ifc.View) Status {
	number := uint32(in.Get("sqn"))
	c, ok := h.engine.QuerySQ(number)
	if !ok || h.sqs[number] == nil {
		return BadRes
	}
	context := out.Sub("sq_context")
	copy(context.Data, h.sqs[number].context)
	for number, state := range sqStates {
		if state == c.State {
			context.Set("state", number)
		}
	}
	return OK
}
