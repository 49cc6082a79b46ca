package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func (h *HCA) allocCounter(in, out ifc.View) Status {
	status := alloc(&h.counters, out, "counter_set_id")
	if status == OK {
		*h.engine.Counters(uint8(out.Get("counter_set_id"))) = transport.Counters{}
	}
	return status
}

func (h *HCA) deallocCounter(in, out ifc.View) Status {
	return dealloc(&h.counters, in.Get("counter_set_id"))
}

func (h *HCA) queryCounter(in, out ifc.View) Status {
	set := uint8(in.Get("counter_set_id"))
	if h.counters.items[uint32(set)] == nil || in.Flag("other_vport") || in.Flag("aggregate") {
		return BadRes
	}
	c := h.engine.Counters(set)
	store(out, []binding{
		{"rx_write_requests", &c.RxWriteRequests},
		{"rx_read_requests", &c.RxReadRequests},
		{"rx_atomic_requests", &c.RxAtomicRequests},
		{"rx_dct_connect", &c.RxDCTConnect},
		{"out_of_buffer", &c.OutOfBuffer},
		{"out_of_sequence", &c.OutOfSequence},
		{"duplicate_request", &c.DuplicateRequest},
		{"rnr_nak_retry_err", &c.RNRNakRetryErr},
		{"packet_seq_err", &c.PacketSeqErr},
		{"implied_nak_seq_err", &c.ImpliedNakSeqErr},
		{"local_ack_timeout_err", &c.LocalAckTimeout},
		{"req_rnr_retries_exceeded", &c.ReqRNRRetriesExceeded},
		{"resp_local_length_error", &c.RespLocalLength},
		{"req_local_length_error", &c.ReqLocalLength},
		{"resp_local_qp_error", &c.RespLocalQP},
		{"local_operation_error", &c.LocalOperation},
		{"resp_local_protection", &c.RespLocalProtection},
		{"req_local_protection", &c.ReqLocalProtection},
		{"resp_cqe_error", &c.RespCQEError},
		{"req_cqe_error", &c.ReqCQEError},
		{"req_mw_binding", &c.ReqMWBinding},
		{"req_bad_response", &c.ReqBadResponse},
		{"req_remote_invalid_request", &c.ReqRemoteInvalidRequest},
		{"resp_remote_invalid_request", &c.RespRemoteInvalidRequest},
		{"req_remote_access_errors", &c.ReqRemoteAccess},
		{"resp_remote_access_errors", &c.RespRemoteAccess},
		{"req_remote_operation_errors", &c.ReqRemoteOperation},
		{"req_transport_retries_exceeded", &c.ReqTransportRetriesExceeded},
		{"resp_cqe_flush_error", &c.RespCQEFlush},
		{"req_cqe_flush_error", &c.ReqCQEFlush},
	})
	if in.Flag("clear") {
		*c = transport.Counters{}
	}
	return OK
}
