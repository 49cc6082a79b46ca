package verbs

import (
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

// A QPState is a QP's state (enum ibv_qp_state).
type QPState = ib.QPState

const (
	QPReset QPState = ib.QPReset // new; nothing can be posted
	QPInit  QPState = ib.QPInit  // receives can be posted
	QPRTR   QPState = ib.QPRTR   // ready to receive
	QPRTS   QPState = ib.QPRTS   // ready to send
	QPSQD   QPState = ib.QPSQD   // the send queue drains
	QPSQE   QPState = ib.QPSQE   // a send failed; UC and UD only
	QPErr   QPState = ib.QPErr   // all work requests are flushed
)

// A QPAttrMask selects fields of a QPAttr (enum ibv_qp_attr_mask).
type QPAttrMask uint32

// Each constant selects the field of QPAttr with its name. QPAttrAV selects QPAttr.AH, and
// QPAttrAltPath all fields of the alternate path. QPAttrCap has no field: no driver here
// resizes a QP's queues.
const (
	QPAttrState            QPAttrMask = QPAttrMask(uapi.IB_QP_STATE)
	QPAttrCurState         QPAttrMask = QPAttrMask(uapi.IB_QP_CUR_STATE)
	QPAttrEnSQDAsyncNotify QPAttrMask = QPAttrMask(uapi.IB_QP_EN_SQD_ASYNC_NOTIFY)
	QPAttrAccess           QPAttrMask = QPAttrMask(uapi.IB_QP_ACCESS_FLAGS)
	QPAttrPKeyIndex        QPAttrMask = QPAttrMask(uapi.IB_QP_PKEY_INDEX)
	QPAttrPort             QPAttrMask = QPAttrMask(uapi.IB_QP_PORT)
	QPAttrQKey             QPAttrMask = QPAttrMask(uapi.IB_QP_QKEY)
	QPAttrAV               QPAttrMask = QPAttrMask(uapi.IB_QP_AV)
	QPAttrPathMTU          QPAttrMask = QPAttrMask(uapi.IB_QP_PATH_MTU)
	QPAttrTimeout          QPAttrMask = QPAttrMask(uapi.IB_QP_TIMEOUT)
	QPAttrRetryCount       QPAttrMask = QPAttrMask(uapi.IB_QP_RETRY_CNT)
	QPAttrRNRRetry         QPAttrMask = QPAttrMask(uapi.IB_QP_RNR_RETRY)
	QPAttrRQPSN            QPAttrMask = QPAttrMask(uapi.IB_QP_RQ_PSN)
	QPAttrMaxRDAtomic      QPAttrMask = QPAttrMask(uapi.IB_QP_MAX_QP_RD_ATOMIC)
	QPAttrAltPath          QPAttrMask = QPAttrMask(uapi.IB_QP_ALT_PATH)
	QPAttrMinRNRTimer      QPAttrMask = QPAttrMask(uapi.IB_QP_MIN_RNR_TIMER)
	QPAttrSQPSN            QPAttrMask = QPAttrMask(uapi.IB_QP_SQ_PSN)
	QPAttrMaxDestRDAtomic  QPAttrMask = QPAttrMask(uapi.IB_QP_MAX_DEST_RD_ATOMIC)
	QPAttrPathMigState     QPAttrMask = QPAttrMask(uapi.IB_QP_PATH_MIG_STATE)
	QPAttrCap              QPAttrMask = QPAttrMask(uapi.IB_QP_CAP)
	QPAttrDestQPN          QPAttrMask = QPAttrMask(uapi.IB_QP_DEST_QPN)
)

func (m QPAttrMask) String() string { return uapi.EnumIbQpAttrMask.Short(uint64(m)) }
