// Package journal defines what an HCA logs of its driver's actions, so that two drivers
// can be compared byte by byte.
package journal

// Log records events in the order in which the HCA saw them. The slices are valid only
// during the call.
type Log interface {
	// Doorbell records a write to a page of doorbells (a UAR).
	Doorbell(uar, offset uint32, data []byte)
	// Send records a WQE of a send queue when its execution begins.
	Send(qpn uint32, index uint16, wqe []byte)
	// Receive records a WQE that a message consumes from a receive queue, or
	// from the shared receive queue srqn, if that isn't 0.
	Receive(qpn, srqn uint32, index uint16, wqe []byte)
}
