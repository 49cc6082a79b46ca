package mlx5dv

import (
	"github.com/goverbs/goverbs/internal/inside"
	"github.com/goverbs/goverbs/verbs"
)

// PostWQE posts a work request that the program has encoded itself (mlx5dv_wr_raw_wqe), for
// operations that package verbs doesn't have. The QP's other requests go on as before, in order
// with it.
//
// The wqe consists of segments of 16 bytes, the first of which is a control segment. Its opcode,
// modifier, flags and immediate are the program's, and so is the number of segments. PostWQE fills
// in the request's number, the QP's, and the signature, if there is one. A WQE may have as many
// blocks of 64 bytes as the QP's longest request has: more with a larger QPCap.MaxSendSGE or
// MaxInlineData. It is copied. What it says is for the adapter alone to check, which may end the
// QP.
//
// Without the flag for a completion (8, MLX5_WQE_CTRL_CQ_UPDATE), a request completes with the
// next one that has it. The completion has the WRID and the WCOpcode of the adapter's operation:
// WCLocalInv for each UMR, WCSend for one that package verbs doesn't have.
//
// The error matches verbs.ErrQueueFull if completions must be polled first, and verbs.ErrInvalid
// for a wqe of the wrong length and in a state before QPRTS. ibvtrace doesn't show the post. PostWQE
// allocates nothing.
func PostWQE(qp *verbs.QP, wrid uint64, wqe []byte) error {
	return inside.PostRaw(qp, wrid, wqe, errDriver)
}
