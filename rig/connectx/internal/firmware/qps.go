package firmware

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func transportStatus(err error) Status {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, transport.ErrBadState):
		return BadQPState
	case errors.Is(err, transport.ErrNoRes):
		return BadRes
	case errors.Is(err, transport.ErrBusy):
		return ResBusy
	case errors.Is(err, transport.ErrLimit):
		return NoRes
	}
	return BadParam
}

// queuePair has the firmware's state of a QP or a DCT.
type queuePair struct {
	object
	context []byte // as it was created
	groups  int    // the number of its multicast groups
	ece     uint64 // the options of its connection
}

func pathBindings(prefix string, p *transport.Path) []binding {
	bindings := []binding{
		{"pkey_index", &p.PKeyIndex}, {"grh", &p.GRH}, {"mlid", &p.PathBits}, {"rlid", &p.DLID},
		{"ack_timeout", &p.AckTimeout}, {"src_addr_index", &p.SGIDIndex}, {"hop_limit", &p.HopLimit},
		{"tclass", &p.TClass}, {"flow_label", &p.FlowLabel}, {"rgid_rip", &p.DGID}, {"sl", &p.SL},
		{"vhca_port_num", &p.Port}, {"rmac_47_32", &p.MAC}, {"eth_prio", &p.Priority},
	}
	for i := range bindings {
		bindings[i].path = prefix + "." + bindings[i].path
	}
	return bindings
}

func qpBindings(c *transport.QPContext) []binding {
	return slices.Concat([]binding{
		{"st", &c.Service}, {"pm_state", &c.PMState}, {"pd", &c.PD}, {"xrcd", &c.XRCD}, {"mtu", &c.MTU},
		{"log_msg_max", &c.LogMsgMax}, {"wq_signature", &c.WQSignature}, {"block_lb_mc", &c.BlockLBMC},
		{"no_sq", &c.NoSQ}, {"log_sq_size", &c.LogSQSize}, {"rq_type", &c.RQType},
		{"log_rq_size", &c.LogRQSize}, {"log_rq_stride", &c.LogRQStride}, {"rlky", &c.RLKey},
		{"uar_page", &c.UAR}, {"user_index", &c.UserIndex}, {"counter_set_id", &c.CounterSet},
		{"remote_qpn", &c.RemoteQPN}, {"log_ack_req_freq", &c.LogAckReqFreq},
		{"log_sra_max", &c.LogSRAMax}, {"log_rra_max", &c.LogRRAMax}, {"retry_count", &c.RetryCount},
		{"rnr_retry", &c.RNRRetry}, {"min_rnr_nak", &c.MinRNRNak}, {"atomic_mode", &c.AtomicMode},
		{"rre", &c.RRE}, {"rwe", &c.RWE}, {"rae", &c.RAE}, {"next_send_psn", &c.NextSendPSN},
		{"next_rcv_psn", &c.NextRecvPSN}, {"cqn_snd", &c.CQNSend}, {"cqn_rcv", &c.CQNRecv},
		{"deth_sqpn", &c.DethSQPN}, {"q_key", &c.QKey}, {"srqn_rmpn_xrqn", &c.SRQN},
		{"dbr_addr", &c.DBRAddr}, {"cs_req", &c.CSReq}, {"cs_res", &c.CSRes},
		{"dc_access_key", &c.DCAccessKey}, {"log_num_dci_stream_channels", &c.LogStreams},
		{"log_num_dci_errored_streams", &c.LogErroredStreams},
	},
		pathBindings("primary_address_path", &c.Primary),
		pathBindings("secondary_address_path", &c.Alternate))
}

// liveBindings has the fields that only QUERY_QP has.
func liveBindings(c *transport.QPContext) []binding {
	return []binding{
		{"state", &c.State}, {"last_acked_psn", &c.LastAckedPSN}, {"ssn", &c.SSN},
		{"hw_sq_wqebb_counter", &c.HWSQCounter}, {"sw_sq_wqebb_counter", &c.SWSQCounter},
		{"hw_rq_counter", &c.HWRQCounter}, {"sw_rq_counter", &c.SWRQCounter},
		{"cur_retry_count", &c.CurRetry}, {"cur_rnr_retry", &c.CurRNRRetry},
	}
}

// cqUse returns the CQ with a number. 0 means none.
func (h *HCA) cqUse(cqn uint32) (*object, bool) {
	if cqn == 0 {
		return nil, true
	}
	q := h.cqs.items[cqn]
	if q == nil {
		return nil, false
	}
	return &q.object, true
}

func (h *HCA) createQP(in, out ifc.View) Status {
	context := in.Sub("qpc")
	var c transport.QPContext
	load(context, qpBindings(&c))
	var stamped bool
	c.RealTime, stamped = stamps(h.caps.current[capRoCE].Get("qp_ts_format"), context.Get("ts_format"))
	if in.Flag("qpc_ext") || !stamped {
		return BadParam
	}
	if 1<<max(c.LogSQSize, c.LogRQSize) > h.limit("log_max_qp_sz") {
		return LimitErr
	}
	if !h.streams(&c) {
		return BadParam
	}
	q := &queuePair{context: slices.Clone(context.Data)}
	status := h.qpMemory(&q.object, in, &c)
	if status == OK {
		status = h.qpUses(&q.object, &c)
	}
	if status != OK {
		q.release()
		return status
	}
	number, err := h.engine.CreateQP(c)
	if err != nil {
		q.release()
		return transportStatus(err)
	}
	h.qps[number] = q
	h.enhance(q, in, out)
	out.Set("qpn", uint64(number))
	return OK
}

// streams reports whether a QP may have as many streams as its context says.
func (h *HCA) streams(c *transport.QPContext) bool {
	if c.Service != transport.DCI {
		return c.LogStreams == 0 && c.LogErroredStreams == 0
	}
	general := h.caps.current[capGeneral]
	return uint64(c.LogStreams) <= general.Get("log_max_dci_stream_channels") &&
		uint64(c.LogErroredStreams) <= general.Get("log_max_dci_errored_streams")
}

// qpMemory finds a QP's buffer and doorbell record, on listed pages or in user memory.
func (h *HCA) qpMemory(o *object, in ifc.View, c *transport.QPContext) (status Status) {
	const recordID = 228 // in the context
	size := c.RingBytes()
	context := in.Sub("qpc")
	if in.Flag("wq_umem_valid") {
		c.Buffer, status = h.userBuffer(o, uint32(in.Get("wq_umem_id")), in.Get("wq_umem_offset"), size)
	} else {
		c.Buffer, status = buffer(in.Bytes("pas"), size, uint(context.Get("log_page_size")), context.Get("page_offset"))
	}
	if status == OK {
		c.DBRAddr, status = h.doorbellRecord(o, context, hidden(context.Data, recordID))
	}
	return status
}

// qpUses marks everything that a QP's context names as used by the QP.
func (h *HCA) qpUses(o *object, c *transport.QPContext) Status {
	send, sendOK := h.cqUse(c.CQNSend)
	receive, receiveOK := h.cqUse(c.CQNRecv)
	pd := h.pds.items[c.PD]
	// The driver sets the PD of its UMR queue pair only when it modifies it.
	late := c.Service == transport.RegUMR && c.PD == 0
	if pd == nil && !late || !sendOK || !receiveOK {
		return BadRes
	}
	o.use(pd, send, receive)
	if uar := h.uar(c.UAR); uar != nil {
		o.use(uar)
	} else if !c.NoSQ {
		return BadRes
	}
	if c.RQType == transport.SharedRQ {
		q := h.srqs[c.SRQN]
		if q == nil {
			return BadRes
		}
		o.use(&q.object)
	}
	if c.Service == transport.XRC {
		xrcd := h.xrcds.items[c.XRCD]
		if xrcd == nil {
			return BadRes
		}
		o.use(xrcd)
	}
	return OK
}

func (h *HCA) destroyQP(in, out ifc.View) Status {
	number := uint32(in.Get("qpn"))
	q := h.qps[number]
	switch {
	case q == nil:
		return BadRes
	case q.groups > 0:
		return ResBusy
	}
	h.flushCQs(number)
	if err := h.engine.DestroyQP(number); err != nil {
		return transportStatus(err)
	}
	q.release()
	delete(h.qps, number)
	return OK
}

// flushCQs ends the compression sessions of a QP's CQs. The driver looks for the QP's
// completions when the command is done, and expects none later.
func (h *HCA) flushCQs(number uint32) {
	c, _ := h.engine.QueryQP(number)
	for _, cqn := range []uint32{c.CQNSend, c.CQNRecv} {
		if q := h.cqs.items[cqn]; q != nil {
			q.Flush(h.c.Now())
		}
	}
}

// transition is a command that changes a QP's state. Some have no context.
func transition(op transport.Transition) func(h *HCA, in, out ifc.View) Status {
	return func(h *HCA, in, out ifc.View) Status {
		var c transport.QPContext
		var mask uint32
		if op != transport.ToErr && op != transport.ToRst {
			load(in.Sub("qpc"), qpBindings(&c))
			mask = uint32(in.Get("opt_param_mask"))
		}
		number := uint32(in.Get("qpn"))
		if h.qps[number] == nil {
			return BadRes
		}
		if op == transport.ToRst {
			h.flushCQs(number)
		}
		set := func(*queuePair) Status { return OK }
		if op == transport.RTS2RTS {
			var status Status
			if set, status = h.rtsOptions(in, &mask); status != OK {
				return status
			}
		}
		status := transportStatus(h.engine.ModifyQP(number, op, mask, &c))
		if status == OK {
			status = set(h.qps[number])
		}
		if status == OK {
			switch op {
			case transport.Rst2Init, transport.Init2Init, transport.Init2RTR, transport.RTR2RTS, transport.RTS2RTS:
				h.enhance(h.qps[number], in, out)
			}
		}
		return status
	}
}

// Options of RTS2RTS_QP. The ports are such that only QUERY_QP shows: there is neither a bond
// nor a UDP header here.
const (
	optLAGPort    = 1 << 15 // of opt_param_mask
	optStream     = 1 << 0  // of opt_param_mask_95_32, which the kernel's header doesn't have
	optSourcePort = 1 << 2  // the same

	// Where these are, in bytes, which the kernel's header doesn't have either: the second
	// mask, and a stream's number in the context's extension.
	optMoreAt   = 264
	optStreamAt = 274

	optExtension = 64 // the bit that says that there is an extension (qpc_ext)
)

// rtsOptions checks these options, and removes them from the mask. It returns a function that
// sets them for a QP.
func (h *HCA) rtsOptions(in ifc.View, mask *uint32) (set func(*queuePair) Status, status Status) {
	asked, fields := in.Sub("qpc"), []string{}
	if *mask&optLAGPort != 0 {
		if !h.promised(capGeneral, "lag_tx_port_affinity") || !h.bonded(asked.Get("lag_tx_port_affinity")) {
			return nil, BadParam
		}
		*mask &^= optLAGPort
		fields = append(fields, "lag_tx_port_affinity")
	}
	if len(in.Data) >= optMoreAt+8 {
		more := binary.BigEndian.Uint64(in.Data[optMoreAt:])
		if more&^(optSourcePort|optStream) != 0 || more&optSourcePort != 0 && !h.c.Ethernet {
			return nil, BadParam
		}
		if more&optStream != 0 {
			return h.streamReset(in, *mask, more)
		}
		if more != 0 {
			fields = append(fields, "primary_address_path.udp_sport")
		}
	}
	return func(q *queuePair) Status {
		now := ifc.View{Layout: asked.Layout, Data: q.context}
		for _, field := range fields {
			now.Set(field, asked.Get(field))
		}
		return OK
	}, OK
}

// streamReset returns a function that resets a stream, which RTS2RTS_QP can't do together with
// anything else here.
func (h *HCA) streamReset(in ifc.View, mask uint32, more uint64) (set func(*queuePair) Status, status Status) {
	if mask != 0 || more != optStream || len(in.Data) < optStreamAt+2 || !hasBit(in.Data, optExtension) ||
		!h.promised(capGeneral, "qpc_extension") || !h.promised(capGeneral, "log_max_dci_errored_streams") {
		return nil, BadParam
	}
	return func(*queuePair) Status {
		return transportStatus(h.engine.ResetStream(uint32(in.Get("qpn")), binary.BigEndian.Uint16(in.Data[optStreamAt:])))
	}, OK
}

// eceOptions has the ECE options that this model accepts. The meaning of the hardware's
// options is not published.
const eceOptions = 0x1000000f

// enhance handles a command's ECE options, and returns those that the QP supports.
func (h *HCA) enhance(q *queuePair, in, out ifc.View) {
	if !h.promised(capGeneral, "ece_support") {
		return
	}
	if asked := in.Get("ece"); asked != 0 {
		q.ece = asked & eceOptions
	}
	out.Set("ece", q.ece)
}

func (h *HCA) queryQP(in, out ifc.View) Status {
	number := uint32(in.Get("qpn"))
	c, ok := h.engine.QueryQP(number)
	if !ok || h.qps[number] == nil {
		return BadRes
	}
	if h.promised(capGeneral, "ece_support") {
		out.Set("ece", h.qps[number].ece)
	}
	context := out.Sub("qpc")
	copy(context.Data, h.qps[number].context)
	store(context, qpBindings(&c))
	store(context, liveBindings(&c))
	if h.ordered() {
		setBit(context.Data, qpDataInOrder)
	}
	return OK
}
