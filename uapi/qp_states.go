package uapi

import "fmt"

// A transition has the attributes that a change of state requires, and the further
// attributes that it allows.
type transition struct {
	types    qpTypes
	required IbQpAttrMask
	optional IbQpAttrMask
}

// qpTypes is a set of types of QPs.
type qpTypes uint16

const (
	rc qpTypes = 1 << iota
	uc
	ud
	xrcIni
	xrcTgt
	rawPacket
	dci
	dct
	srd
)

// typeNamed returns the type with a name, or none.
func typeNamed(name string) qpTypes {
	switch name {
	case "RC":
		return rc
	case "UC":
		return uc
	case "UD":
		return ud
	case "XRC_INI":
		return xrcIni
	case "XRC_TGT":
		return xrcTgt
	case "RAW_PACKET":
		return rawPacket
	case "DCI":
		return dci
	case "DCT":
		return dct
	case "SRD":
		return srd
	}
	return 0
}

// transitions has the changes from one state to another, of all types. It is the state machine of
// the InfiniBand specification (11.2.5.2, "QP/EE state transition properties"), as the kernel
// enforces it (ib_modify_qp_is_ok), mlx5's driver for DC, and efa's for SRD. In addition, every
// state can change to RESET, and every state except RESET to ERR, without attributes, except for a
// DCT. The kernel's table also has moves out of SQE for QPs that can never be in it, and moves of
// raw packet QPs to SQD and back, which no driver supports.
var transitions = [IB_QPS_ERR + 1][IB_QPS_ERR + 1][]transition{
	IB_QPS_RESET: {
		IB_QPS_INIT: {
			{rc | uc | xrcIni | xrcTgt | dct, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, 0},
			{ud | srd, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY, 0},
			{rawPacket, IB_QP_PORT, 0},
			{dci, IB_QP_PKEY_INDEX | IB_QP_PORT, 0},
		},
	},
	IB_QPS_INIT: {
		IB_QPS_INIT: {
			{rawPacket, 0, 0},
			{dci, 0, IB_QP_PKEY_INDEX | IB_QP_PORT},
			{rc | uc | xrcIni | xrcTgt, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS},
			{ud | srd, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY},
		},
		IB_QPS_RTR: {
			{rc | xrcTgt, IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER,
				IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX},
			{uc | xrcIni, IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN, IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX},
			{ud | srd, 0, IB_QP_PKEY_INDEX | IB_QP_QKEY},
			{rawPacket, 0, 0},
			{dci, IB_QP_PATH_MTU, IB_QP_PKEY_INDEX | IB_QP_AV},
			{dct, IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU, 0},
		},
	},
	IB_QPS_RTR: {
		IB_QPS_RTS: {
			{rc, IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
				IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
			{xrcIni, IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
				IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE},
			{xrcTgt, IB_QP_TIMEOUT | IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
			{dci, IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC, IB_QP_MIN_RNR_TIMER},
			{rawPacket, 0, 0},
			{uc, IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE},
			{ud, IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_QKEY},
			{srd, IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_QKEY | IB_QP_RNR_RETRY},
		},
	},
	IB_QPS_RTS: {
		IB_QPS_RTS: {
			{rawPacket, 0, 0},
			{dci, 0, IB_QP_MIN_RNR_TIMER},
			{rc | xrcTgt, 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE | IB_QP_MIN_RNR_TIMER},
			{uc | xrcIni, 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE},
			{ud | srd, 0, IB_QP_CUR_STATE | IB_QP_QKEY},
		},
		IB_QPS_SQD: {
			{rc | uc | ud | xrcIni | xrcTgt | srd, 0, IB_QP_EN_SQD_ASYNC_NOTIFY},
		},
	},
	IB_QPS_SQD: {
		IB_QPS_RTS: {
			{rc | xrcTgt, 0, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
			{uc | xrcIni, 0, IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE},
			{ud | srd, 0, IB_QP_CUR_STATE | IB_QP_QKEY},
		},
		IB_QPS_SQD: {
			{rc, 0, IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC | IB_QP_MAX_DEST_RD_ATOMIC |
				IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
			{xrcIni, 0, IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC |
				IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PATH_MIG_STATE},
			{xrcTgt, 0, IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_ALT_PATH |
				IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE},
			{uc, 0, IB_QP_AV | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PATH_MIG_STATE},
			{ud | srd, 0, IB_QP_PKEY_INDEX | IB_QP_QKEY},
		},
	},
	IB_QPS_SQE: {
		IB_QPS_RTS: {
			{uc, 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS},
			{ud | srd, 0, IB_QP_CUR_STATE | IB_QP_QKEY},
		},
	},
}

// find returns the transition of a QP of type t.
func find(t string, from, to IbQpState) (transition, bool) {
	if t != "DCT" && (to == IB_QPS_RESET || to == IB_QPS_ERR && from != IB_QPS_RESET) {
		return transition{}, true
	}
	if from <= IB_QPS_ERR && to <= IB_QPS_ERR {
		typ := typeNamed(t)
		for _, tr := range transitions[from][to] {
			if tr.types&typ != 0 {
				return tr, true
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
