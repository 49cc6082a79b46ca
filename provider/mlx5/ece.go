package mlx5

import "github.com/goverbs/goverbs/uapi"

// vendorID is Mellanox's PCI vendor ID.
const vendorID = 0x15b3

// eceTrigger requests version 1 of the options of enhanced connection establishment
// from the kernel.
const eceTrigger = 0x10000000

// An ece is the state of a QP's enhanced connection establishment.
type ece struct {
	options uint32 // the adapter's options
	asked   uint32 // options to request with the next change of state; 0 for none
}

func (q *qp) ECE() (vendor, options uint32) { return vendorID, q.ece.options }

// SetECE also clears the adapter's options, as libmlx5 does.
func (q *qp) SetECE(options uint32) bool {
	if !q.ctx.ece {
		return false
	}
	q.ece = ece{asked: options}
	return true
}

// setResponse records the options in the response to a change of state.
func (e *ece) setResponse(resp *uapi.Mlx5IbModifyQpResp) {
	if e.asked != 0 {
		e.options, e.asked = resp.EceOptions, 0
	}
}
