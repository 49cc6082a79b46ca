package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// srqKind says which commands created a shared receive queue.
type srqKind uint8

const (
	plainSRQ srqKind = iota
	xrcSRQ
	rmp
	xrq
)

type sharedQueue struct {
	object
	kind    srqKind
	context []byte // as it was created
}

// wqMinStride is the logarithm of the smallest WQE size, the unit of sizes.
const wqMinStride = 4

// addSRQ creates a shared receive queue. It keeps the context in for queries.
func (h *HCA) addSRQ(kind srqKind, c transport.SRQContext, in []byte, pas []byte, logPage, offset uint64) (uint32, Status) {
	switch {
	case 1<<c.LogSize > h.limit("log_max_srq_sz"):
		return 0, LimitErr
	case uint64(len(h.srqs)) >= h.limit("log_max_srq"):
		return 0, NoRes
	}
	var status Status
	c.Buffer, status = buffer(pas, 1<<(wqMinStride+c.LogStride)<<c.LogSize, uint(logPage), offset)
	if status != OK {
		return 0, status
	}
	pd := h.pds.items[c.PD]
	if pd == nil {
		return 0, BadRes
	}
	q := &sharedQueue{kind: kind, context: slices.Clone(in)}
	q.use(pd)
	if kind == xrcSRQ || kind == xrq {
		completions, ok := h.cqUse(c.CQN)
		if !ok {
			q.release()
			return 0, BadRes
		}
		q.use(completions)
	}
	if kind == xrcSRQ {
		xrcd := h.xrcds.items[c.XRCD]
		if xrcd == nil {
			q.release()
			return 0, BadRes
		}
		q.use(xrcd)
	}
	number, err := h.engine.CreateSRQ(c)
	if err != nil {
		q.release()
		return 0, transportStatus(err)
	}
	h.srqs[number] = q
	return number, OK
}

func (h *HCA) endSRQ(kind srqKind, number uint32) Status {
	q := h.srqs[number]
	switch {
	case q == nil || q.kind != kind:
		return BadRes
	case q.users > 0:
		return ResBusy
	}
	if err := h.engine.DestroySRQ(number); err != nil {
		return transportStatus(err)
	}
	q.release()
	delete(h.srqs, number)
	return OK
}

func (h *HCA) armAny(kind srqKind, number uint32, lwm uint64) Status {
	if q := h.srqs[number]; q == nil || q.kind != kind {
		return BadRes
	}
	return transportStatus(h.engine.ArmSRQ(number, uint16(lwm)))
}

// live copies the context that a queue was created with to out, and returns the queue's
// current context.
func (h *HCA) live(kind srqKind, number uint32, out ifc.View) (transport.SRQContext, Status) {
	q := h.srqs[number]
	c, ok := h.engine.QuerySRQ(number)
	if q == nil || q.kind != kind || !ok {
		return c, BadRes
	}
	copy(out.Data, q.context)
	return c, OK
}

// stateError is the state of a queue whose memory can't be read.
const stateError = 0xf

func (h *HCA) createSRQ(in, out ifc.View) Status {
	context := in.Sub("srq_context_entry")
	var c transport.SRQContext
	load(context, []binding{
		{"log_srq_size", &c.LogSize}, {"log_rq_stride", &c.LogStride}, {"wq_signature", &c.WQSignature},
		{"rlky", &c.RLKey}, {"pd", &c.PD}, {"lwm", &c.LWM}, {"dbr_addr", &c.DBRAddr},
	})
	number, status := h.addSRQ(plainSRQ, c, context.Data, in.Bytes("pas"), context.Get("log_page_size"), context.Get("page_offset"))
	out.Set("srqn", uint64(number))
	return status
}

func (h *HCA) destroySRQ(in, out ifc.View) Status {
	return h.endSRQ(plainSRQ, uint32(in.Get("srqn")))
}

func (h *HCA) armRQ(in, out ifc.View) Status {
	const opXRQ = 2
	kind := plainSRQ
	if in.Get("op_mod") == opXRQ {
		kind = xrq
	}
	return h.armAny(kind, uint32(in.Get("srq_number")), in.Get("lwm"))
}

func (h *HCA) querySRQ(in, out ifc.View) Status {
	context := out.Sub("srq_context_entry")
	c, status := h.live(plainSRQ, uint32(in.Get("srqn")), context)
	showSRQ(context, c)
	return status
}

// showSRQ writes the changing fields of an SRQ's or XRC SRQ's context.
func showSRQ(context ifc.View, c transport.SRQContext) {
	context.Set("lwm", uint64(c.LWM))
	context.Set("wqe_cnt", uint64(c.Available))
	context.Set("state", 0)
	if c.Bad {
		context.Set("state", stateError)
	}
}

func (h *HCA) createXRCSRQ(in, out ifc.View) Status {
	context := in.Sub("xrc_srq_context_entry")
	if in.Flag("xrc_srq_umem_valid") || context.Flag("dbr_umem_valid") {
		return BadParam
	}
	c := transport.SRQContext{
		XRC:     true,
		DBRAddr: context.Get("db_record_addr_h")<<32 | context.Get("db_record_addr_l")<<2,
	}
	load(context, []binding{
		{"log_xrc_srq_size", &c.LogSize}, {"log_rq_stride", &c.LogStride}, {"wq_signature", &c.WQSignature},
		{"basic_cyclic_rcv_wqe", &c.Cyclic}, {"rlky", &c.RLKey}, {"pd", &c.PD}, {"xrcd", &c.XRCD},
		{"cqn", &c.CQN}, {"user_index", &c.UserIndex}, {"lwm", &c.LWM},
	})
	number, status := h.addSRQ(xrcSRQ, c, context.Data, in.Bytes("pas"), context.Get("log_page_size"), context.Get("page_offset"))
	out.Set("xrc_srqn", uint64(number))
	return status
}

func (h *HCA) destroyXRCSRQ(in, out ifc.View) Status {
	return h.endSRQ(xrcSRQ, uint32(in.Get("xrc_srqn")))
}

func (h *HCA) armXRCSRQ(in, out ifc.View) Status {
	return h.armAny(xrcSRQ, uint32(in.Get("xrc_srqn")), in.Get("lwm"))
}

func (h *HCA) queryXRCSRQ(in, out ifc.View) Status {
	context := out.Sub("xrc_srq_context_entry")
	c, status := h.live(xrcSRQ, uint32(in.Get("xrc_srqn")), context)
	showSRQ(context, c)
	return status
}

func (h *HCA) createRMP(in, out ifc.View) Status {
	context := in.Sub("ctx")
	wq := context.Sub("wq")
	const linkedList, cyclic = 0, 1
	kind, logStride := wq.Get("wq_type"), wq.Get("log_wq_stride")
	if kind > cyclic || logStride < wqMinStride || wq.Flag("wq_umem_valid") || wq.Flag("dbr_umem_valid") {
		return BadParam
	}
	c := transport.SRQContext{Cyclic: kind == cyclic, LogStride: uint8(logStride - wqMinStride), RLKey: true}
	load(wq, []binding{
		{"log_wq_sz", &c.LogSize}, {"wq_signature", &c.WQSignature}, {"pd", &c.PD},
		{"lwm", &c.LWM}, {"dbr_addr", &c.DBRAddr},
	})
	// The pages follow the layout.
	pas := in.Data[min(in.Size(), len(in.Data)):]
	number, status := h.addSRQ(rmp, c, context.Data[:min(context.Size(), len(context.Data))], pas, wq.Get("log_wq_pg_sz"), wq.Get("page_offset"))
	out.Set("rmpn", uint64(number))
	return status
}

func (h *HCA) destroyRMP(in, out ifc.View) Status {
	return h.endSRQ(rmp, uint32(in.Get("rmpn")))
}

// States of an RMP.
const (
	rmpReady = 1
	rmpError = 3
)

// modifyRMP only arms the limit; an RMP stays ready.
func (h *HCA) modifyRMP(in, out ifc.View) Status {
	if in.Get("rmp_state") != rmpReady || !in.Flag("bitmask.lwm") {
		return BadParam
	}
	return h.armAny(rmp, uint32(in.Get("rmpn")), in.Get("ctx.wq.lwm"))
}

func (h *HCA) queryRMP(in, out ifc.View) Status {
	context := out.Sub("rmp_context")
	c, status := h.live(rmp, uint32(in.Get("rmpn")), context)
	context.Set("wq.lwm", uint64(c.LWM))
	context.Set("state", rmpReady)
	if c.Bad {
		context.Set("state", rmpError)
	}
	return status
}
