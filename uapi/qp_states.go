package uapi

import (
	"fmt"
	"strings"
)

// A transition has the attributes that a change of state requires, and those that it
// allows in addition.
type transition struct {
	from, to IbQpState
	types    string // "RC", "UC", "UD" and so on, or several, separated by spaces
	required IbQpAttrMask
	optional IbQpAttrMask
}

// transitions is the state machine of the InfiniBand specification (11.2.5.2, "QP/EE state
// transition properties"), as the kernel enforces it (ib_modify_qp_is_ok), mlx5's driver
// for DC, and efa's for SRD. In addition, every state can change to RESET, and every state except RESET to ERR,
// without attributes, except for a DCT. The kernel's table also lets QPs leave SQE that can
// never be in it, and lets raw packet QPs change to SQD and back, which no driver supports.
var transitions = []transition{
	{IB_QPS_RESET, IB_QPS_INIT, "RC UC XRC_INI XRC_TGT DCT", IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, 0},
	{IB_QPS_RESET, IB_QPS_INIT, "UD SRD", IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY, 0},

	{IB_QPS_RESET, IB_QPS_INIT, "RAW_PACKET", IB_QP_PORT, 0},
	{IB_QPS_RESET, IB_QPS_INIT, "DCI", IB_QP_PKEY_INDEX | IB_QP_PORT, 0},

	{IB_QPS_INIT, IB_QPS_INIT, "RAW_PACKET", 0, 0},
	{IB_QPS_INIT, IB_QPS_INIT, "DCI", 0, IB_QP_PKEY_INDEX | IB_QP_PORT},
	{IB_QPS_INIT, IB_QPS_INIT, "RC UC XRC_INI XRC_TGT", 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS},
	{IB_QPS_INIT, IB_QPS_INIT, "UD SRD", 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY},

	{IB_QPS_INIT, IB_QPS_RTR, "RC XRC_TGT", IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER,
		IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX},
	{IB_QPS_INIT, IB_QPS_RTR, "UC XRC_INI", IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN,
		IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX},
	{IB_QPS_INIT, IB_QPS_RTR, "UD SRD", 0, IB_QP_PKEY_INDEX | IB_QP_QKEY},
	{IB_QPS_INIT, IB_QPS_RTR, "RAW_PACKET", 0, 0},
	{IB_QPS_INIT, IB_QPS_RTR, "DCI", IB_QP_PATH_MTU, IB_QP_PKEY_INDEX | IB_QP_AV},
	{IB_QPS_INIT, IB_QPS_RTR, "DCT", IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU, 0},

	{IB_QPS_RTR, IB_QPS_RTS, "RC", IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
		IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
	{IB_QPS_RTR, IB_QPS_RTS, "XRC_INI", IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
		IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE},
	{IB_QPS_RTR, IB_QPS_RTS, "XRC_TGT", IB_QP_TIMEOUT | IB_QP_SQ_PSN,
		IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
	{IB_QPS_RTR, IB_QPS_RTS, "DCI", IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC, IB_QP_MIN_RNR_TIMER},
	{IB_QPS_RTR, IB_QPS_RTS, "RAW_PACKET", 0, 0},
	{IB_QPS_RTR, IB_QPS_RTS, "UC", IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE},
	{IB_QPS_RTR, IB_QPS_RTS, "UD", IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_QKEY},
	{IB_QPS_RTR, IB_QPS_RTS, "SRD", IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_QKEY | IB_QP_RNR_RETRY},

	{IB_QPS_RTS, IB_QPS_RTS, "RAW_PACKET", 0, 0},
	{IB_QPS_RTS, IB_QPS_RTS, "DCI", 0, IB_QP_MIN_RNR_TIMER},
	{IB_QPS_RTS, IB_QPS_RTS, "RC XRC_TGT", 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE | IB_QP_MIN_RNR_TIMER},
	{IB_QPS_RTS, IB_QPS_RTS, "UC XRC_INI", 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE},
	{IB_QPS_RTS, IB_QPS_RTS, "UD SRD", 0, IB_QP_CUR_STATE | IB_QP_QKEY},

	{IB_QPS_RTS, IB_QPS_SQD, "RC UC UD XRC_INI XRC_TGT SRD", 0, IB_QP_EN_SQD_ASYNC_NOTIFY},

	{IB_QPS_SQD, IB_QPS_RTS, "RC XRC_TGT", 0, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
	{IB_QPS_SQD, IB_QPS_RTS, "UC XRC_INI", 0, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE},
	{IB_QPS_SQD, IB_QPS_RTS, "UD SRD", 0, IB_QP_CUR_STATE | IB_QP_QKEY},

	{IB_QPS_SQD, IB_QPS_SQD, "RC", 0, IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
		IB_QP_MAX_QP_RD_ATOMIC | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX |
		IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
	{IB_QPS_SQD, IB_QPS_SQD, "XRC_INI", 0, IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
		IB_QP_MAX_QP_RD_ATOMIC | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PATH_MIG_STATE},
	{IB_QPS_SQD, IB_QPS_SQD, "XRC_TGT", 0, IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_ALT_PATH |
		IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
	{IB_QPS_SQD, IB_QPS_SQD, "UC", 0, IB_QP_AV | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PATH_MIG_STATE},
	{IB_QPS_SQD, IB_QPS_SQD, "UD SRD", 0, IB_QP_PKEY_INDEX | IB_QP_QKEY},

	{IB_QPS_SQE, IB_QPS_RTS, "UC", 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS},
	{IB_QPS_SQE, IB_QPS_RTS, "UD SRD", 0, IB_QP_CUR_STATE | IB_QP_QKEY},
}

// find returns the transition of a QP of type t.
func find(t string, from, to IbQpState) (transition, bool) {
	if t != "DCT" && (to == IB_QPS_RESET || to == IB_QPS_ERR && from != IB_QPS_RESET) {
		return transition{}, true
	}
	for i := range transitions {
		tr := &transitions[i]
		if tr.from != from || tr.to != to {
			continue
		}
		for of := range strings.FieldsSeq(tr.types) {
			if of == t {
				return *tr, true
			}
		}
	}
	return transition{}, false
}

// ModifyQPNeeds returns the attributes that the kernel needs, beside IB_QP_STATE, to move a QP
// of type t ("RC", "XRC_INI", "DCI", …) from one state to another, and whether it can.
func ModifyQPNeeds(t string, from, to IbQpState) (required IbQpAttrMask, ok bool) {
	tr, ok := find(t, from, to)
	return tr.required, ok
}

// WhyNotModifyQP returns why the kernel refuses a modify_qp with these attributes for a QP
// of type t ("RC", "XRC_INI", "DCI", …) in state from. It returns "" if the state machine
// allows the change. Without IB_QP_STATE, to is from.
func WhyNotModifyQP(t string, from, to IbQpState, mask IbQpAttrMask) string {
	if x := mask &^ IB_QP_ATTR_STANDARD_BITS; x != 0 {
		return fmt.Sprintf("unknown bits %#x in the attribute mask", uint32(x))
	}
	if to > IB_QPS_ERR || from > IB_QPS_ERR {
		return fmt.Sprintf("there is no state %d", uint32(max(to, from)))
	}
	state := func(s IbQpState) string { return EnumIbQpState.Short(uint64(s)) }
	attrs := func(m IbQpAttrMask) string { return EnumIbQpAttrMask.Short(uint64(m)) }
	extra := mask &^ IB_QP_STATE
	tr, ok := find(t, from, to)
	if !ok {
		return fmt.Sprintf("a %s QP can't go from %s to %s", t, state(from), state(to))
	}
	if missing := tr.required &^ mask; missing != 0 {
		return fmt.Sprintf("%s to %s of a %s QP needs %s too", state(from), state(to), t, attrs(missing))
	}
	switch wrong := extra &^ (tr.required | tr.optional); {
	case wrong == 0:
		return ""
	case tr.required|tr.optional == 0:
		return fmt.Sprintf("%s to %s takes no attributes, not %s", state(from), state(to), attrs(wrong))
	default:
		return fmt.Sprintf("%s to %s of a %s QP doesn't take %s", state(from), state(to), t, attrs(wrong))
	}
}
