// Package journal says what an HCA logs of what its driver does to it, so that
// one driver can be compared with another byte by byte.
package journal

// Log takes what happened, in the order in which the HCA saw it. The slices
// are only good during the call.
type Log interface {
	// Doorbell is a write to a page of doorbells (a UAR).
	Doorbell(uar, offset uint32, data []byte)
	// Send is a WQE of a send queue that begins to be executed.
	Send(qpn uint32, index uint16, wqe []byte)
	// Receive is a WQE that a message takes from a receive queue (or from
	// the shared receive queue srqn, if that is not 0).
	Receive(qpn, srqn uint32, index uint16, wqe []byte)
}
