package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Limits of tag matching.
const logMaxTags = 7

const (
	topologyTags = 1 // XRQC_TOPOLOGY_TAG_MATCHING
	offloadRndv  = 1
)

func (h *HCA) createXRQ(in, out ifc.View) Status {
	if !h.promised(capGeneral, "tag_matching") {
		return BadParam
	}
	context := in.Sub("xrq_context")
	wq := context.Sub("wq")
	logStride := wq.Get("log_wq_stride")
	if context.Get("topology") != topologyTags || context.Get("offload") > offloadRndv ||
		wq.Get("wq_type") != 0 || logStride < wqMinStride || wq.Flag("wq_umem_valid") || wq.Flag("dbr_umem_valid") {
		return BadParam
	}
	c := transport.SRQContext{TM: true, LogStride: uint8(logStride - wqMinStride)}
	load(context, []binding{
		{"tag_matching_topology_context.log_matching_list_sz", &c.LogTags}, {"rlkey", &c.RLKey},
		{"user_index", &c.UserIndex}, {"cqn", &c.CQN},
	})
	load(wq, []binding{
		{"log_wq_sz", &c.LogSize}, {"wq_signature", &c.WQSignature}, {"pd", &c.PD},
		{"lwm", &c.LWM}, {"dbr_addr", &c.DBRAddr},
	})
	if c.LogTags > logMaxTags {
		return LimitErr
	}
	// The pages follow the layout.
	pas := in.Data[min(in.Size(), len(in.Data)):]
	number, status := h.addSRQ(xrq, c, context.Data[:min(context.Size(), len(context.Data))], pas, wq.Get("log_wq_pg_sz"), wq.Get("page_offset"))
	out.Set("xrqn", uint64(number))
	return status
}

func (h *HCA) destroyXRQ(in, out ifc.View) Status {
	return h.endSRQ(xrq, uint32(in.Get("xrqn")))
}

func (h *HCA) queryXRQ(in, out ifc.View) Status {
	context := out.Sub("xrq_context")
	c, status := h.live(xrq, uint32(in.Get("xrqn")), context)
	context.Set("wq.lwm", uint64(c.LWM))
	tags := context.Sub("tag_matching_topology_context")
	tags.Set("append_next_index", uint64(c.NextTag))
	tags.Set("sw_phase_cnt", uint64(c.SoftwarePhase))
	tags.Set("hw_phase_cnt", uint64(c.DevicePhase))
	context.Set("state", 0)
	if c.Bad {
		context.Set("state", 1)
	}
	return status
}
