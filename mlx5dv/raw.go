package mlx5dv

import (
	"github.com/goverbs/goverbs/internal/driververbs"
	"github.com/goverbs/goverbs/verbs"
)

// PostWQE posts a work request that the program has encoded itself (mlx5dv_wr_raw_wqe), for
// operations that package verbs doesn't have. The QP's other requests are posted as before, in
// order with this request.
//
// The wqe consists of segments of 16 bytes, the first of which is a control segment. The program
// sets its opcode, modifier, flags, immediate and number of segments. PostWQE fills in the numbers
// of the request and the QP, and the signature, if there is one. A WQE may have as many blocks of
// 64 bytes as the QP's longest request has: more with a larger QPCap.MaxSendSGE or MaxInlineData.
// PostWQE copies the wqe. Only the adapter checks its content, and may move the QP to the error
// state.
//
// Without the flag for a completion (8, MLX5_WQE_CTRL_CQ_UPDATE), a request completes with the
// next request that has the flag. The completion has the WRID and the WCOpcode of the adapter's
// operation: WCLocalInv for each UMR, WCSend for an operation that package verbs doesn't have.
//
// The error matches verbs.ErrQueueFull if completions must be polled first, and
// verbs.ErrInvalid if the wqe's length is wrong or the QP is in a state before QPRTS.
// ibvtrace doesn't show the post. PostWQE allocates nothing.
func PostWQE(qp *verbs.QP, wrid uint64, wqe []byte) error {
	return driververbs.Verbs.PostWQE(qp, wrid, wqe, errDriver)
}
