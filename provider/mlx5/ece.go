package mlx5

import "github.com/goverbs/goverbs/uapi"

// vendorID is Mellanox's, of PCI.
const vendorID = 0x15b3

// eceTrigger asks the kernel for the enhanced connection establishment's
// options: version 1 of them.
const eceTrigger = 0x10000000

// An ece is what of enhanced connection establishment a QP has.
type ece struct {
	options uint32 // that the adapter has
	asked   uint32 // for the next change of state, 0 if nothing is
}

func (q *qp) ECE() (vendor, options uint32) { return vendorID, q.ece.options }

// SetECE forgets what the adapter had said, as libmlx5 does.
func (q *qp) SetECE(options uint32) bool {
	if !q.ctx.ece {
		return false
	}
	q.ece = ece{asked: options}
	return true
}

// answered takes what a change of state said.
func (e *ece) answered(resp *uapi.Mlx5IbModifyQpResp) {
	if e.asked != 0 {
		e.options, e.asked = resp.EceOptions, 0
	}
}
