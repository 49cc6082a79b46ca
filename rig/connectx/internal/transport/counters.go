package transport

// Counters is a set of counters, with the names of QUERY_Q_COUNTER.
type Counters struct {
	RxWriteRequests, RxReadRequests, RxAtomicRequests, RxDCTConnect uint32
	OutOfBuffer, OutOfSequence, DuplicateRequest                    uint32
	RNRNakRetryErr, PacketSeqErr, ImpliedNakSeqErr, LocalAckTimeout uint32
	RespLocalLength, ReqLocalLength, RespLocalQP, LocalOperation    uint32
	RespLocalProtection, ReqLocalProtection                         uint32
	RespCQEError, ReqCQEError, ReqMWBinding, ReqBadResponse         uint32
	ReqRemoteInvalidRequest, RespRemoteInvalidRequest               uint32
	ReqRemoteAccess, RespRemoteAccess, ReqRemoteOperation           uint32
	ReqTransportRetriesExceeded, RespCQEFlush, ReqCQEFlush          uint32
	ReqRNRRetriesExceeded                                           uint32
}
