package uapi

// The statuses of tag matching, which the kernel's headers lack.
const (
	IBV_WC_TM_ERR             = IB_WC_GENERAL_ERR + 1
	IBV_WC_TM_RNDV_INCOMPLETE = IB_WC_GENERAL_ERR + 2
)

// EnumIbvWcStatus is EnumIbWcStatus with the statuses of tag matching.
var EnumIbvWcStatus = &Enum{Prefix: EnumIbWcStatus.Prefix, Values: append(EnumIbWcStatus.Values[:len(EnumIbWcStatus.Values):len(EnumIbWcStatus.Values)],
	EnumValue{uint64(IBV_WC_TM_ERR), "IB_WC_TM_ERR"}, EnumValue{uint64(IBV_WC_TM_RNDV_INCOMPLETE), "IB_WC_TM_RNDV_INCOMPLETE"})}

// WCMeaning returns the usual cause of a completion's status.
func WCMeaning(s IbWcStatus) string {
	switch s {
	case IB_WC_SUCCESS:
		return "success"
	case IB_WC_LOC_LEN_ERR:
		return "the message doesn't fit the receive's buffers, or exceeds what the QP may send"
	case IB_WC_LOC_QP_OP_ERR:
		return "the QP can't do this operation, or has no valid path"
	case IB_WC_LOC_PROT_ERR:
		return "a local buffer is not in the memory region that its lkey names"
	case IB_WC_WR_FLUSH_ERR:
		return "the QP was in the error state: an earlier completion, or the peer, says why"
	case IB_WC_MW_BIND_ERR:
		return "the memory window could not be bound"
	case IB_WC_BAD_RESP_ERR:
		return "the peer's response was not understood"
	case IB_WC_LOC_ACCESS_ERR:
		return "the peer's write violated the protection of a local buffer"
	case IB_WC_REM_INV_REQ_ERR:
		return "the peer found the request invalid: too long for its receive, or not enabled on its QP"
	case IB_WC_REM_ACCESS_ERR:
		return "the peer refused access: check the rkey, the range, and the access flags of its memory region and QP"
	case IB_WC_REM_OP_ERR:
		return "the peer could not complete the request"
	case IB_WC_RETRY_EXC_ERR:
		return "the peer didn't answer: the path is wrong, or its QP is not yet in RTR or is in the error state"
	case IB_WC_RNR_RETRY_EXC_ERR:
		return "the peer had no receive posted"
	case IB_WC_FATAL_ERR:
		return "the device failed"
	case IBV_WC_TM_ERR:
		return "the tag was no longer in the list: a message had matched it"
	case IBV_WC_TM_RNDV_INCOMPLETE:
		return "the device did not get the data of a message that matched: it is longer than the tag's buffer, or the QP failed"
	}
	return "unspecified failure"
}
