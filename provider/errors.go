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
	ErrTooLong      = errors.New("the message is longer than the device allows")
	ErrRecvTooLong  = errors.New("the buffers add up to 4 GiB or more")
	ErrNoAtomics    = errors.New("the device has no such atomic operation")
	ErrNoChecksums  = errors.New("the device doesn't compute a packet's checksums")
	ErrNoPacket     = errors.New("the packet is empty")
	ErrShortPacket  = errors.New("the packet is shorter than the headers that the device requires inline")
	ErrTSOHeader    = errors.New("the header of OpTSO is shorter than an Ethernet header, or longer than the queue allows")
	ErrOpcode       = errors.New("operation is not supported")
	ErrNoField      = errors.New("the device's completions lack a field")
	ErrCQOverrun    = errors.New("completion queue overflowed")
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
