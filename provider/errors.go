package provider

import (
	"errors"
	"fmt"
)

// The errors of queues. They are made once, because the fast path may return them at a
// high rate.
var (
	ErrQueueFull    = errors.New("queue is full")
	ErrNoQueue      = errors.New("QP has no receive queue of its own: it uses an SRQ")
	ErrTooManySGEs  = errors.New("more scatter/gather entries than the queue allows")
	ErrInlineTooBig = errors.New("more inline data than the queue allows")
	ErrTooLong      = errors.New("longer than the device can do at once")
	ErrRecvTooLong  = errors.New("the buffers have 4 GiB or more")
	ErrNoAtomics    = errors.New("the device has no such atomic operation")
	ErrNoChecksums  = errors.New("the device doesn't compute a packet's checksums")
	ErrNoPacket     = errors.New("a packet has no data")
	ErrShortPacket  = errors.New("a packet is shorter than the header that the device wants")
	ErrTSOHeader    = errors.New("the header of OpTSO is shorter than an Ethernet header, or longer than the queue allows")
	ErrOpcode       = errors.New("operation is not supported")
	ErrCQOverrun    = errors.New("completion queue overran")
)

// A CQEError is an entry in a completion queue that matches no request of this process.
// Either the device has an error, or this library misunderstands it. The entry is
// consumed, and those after it can be polled.
type CQEError struct {
	Why string
	CQE [64]byte // as the device wrote it
}

func (e *CQEError) Error() string {
	return fmt.Sprintf("an entry in the completion queue %s: %x", e.Why, e.CQE)
}
