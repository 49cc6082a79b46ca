package provider

import (
	"errors"
	"fmt"
)

// The errors of queues are made once, because the fast path may return them at a high rate.
var (
	ErrQueueFull    = errors.New("queue is full")
	ErrNoQueue      = errors.New("QP has no receive queue of its own: it uses an SRQ")
	ErrTooManySGEs  = errors.New("more scatter/gather entries than the queue allows")
	ErrInlineTooBig = errors.New("more inline data than the queue allows")
	ErrTooLong      = errors.New("the message is longer than the device allows")
	ErrRecvTooLong  = errors.New("the buffers add up to 2 GiB or more")
	ErrNoAtomics    = errors.New("the device has no such atomic operation")
	ErrNoImmediate  = errors.New("iWARP has no immediate data")
	ErrInlineOp     = errors.New("the device takes no inline data with this operation")
	ErrNoRDMA       = errors.New("the device has no such RDMA operation")
	ErrSendFlags    = errors.New("the device has no fences and no solicited events")
	ErrUnsignaled   = errors.New("the device completes every request: set SendSignaled, or QPOptions.SignalAll")
	ErrRemoteQPN    = errors.New("the device's queue pair numbers have 16 bits")
	ErrNowhere      = errors.New("the request has no Opcode, or no Remote")
	ErrEmptyRecv    = errors.New("the device needs a buffer in each receive")
	ErrFencedRead   = errors.New("the device can't fence an RDMA read")
	ErrNoChecksums  = errors.New("the device doesn't compute a packet's checksums")
	ErrNoPacket     = errors.New("the packet is empty")
	ErrShortPacket  = errors.New("the packet is shorter than the headers that the device requires inline")
	ErrWQE          = errors.New("the WQE is not as long as its control segment states, in segments of 16 bytes, or is longer than the queue allows")
	ErrTSOHeader    = errors.New("the header of OpTSO is shorter than an Ethernet header, or longer than the queue allows")
	ErrOpcode       = errors.New("operation is not supported")
	ErrNoField      = errors.New("the device's completions lack a field")
	ErrTagsFull     = errors.New("the list of tags is full")
	ErrNoTag        = errors.New("no tag in the list has the handle")
	ErrNoWQ         = errors.New("the device has no work queues")
	ErrCQOverrun    = errors.New("completion queue overflowed")
)

// ErrNotSupported matches the errors of control verbs that the device lacks.
var ErrNotSupported = errors.New("not supported")

// A CQEError is an entry in a completion queue that matches no request of this process.
// Either the device is faulty, or this library misreads the entry. Poll drops the entry;
// later entries can be polled.
type CQEError struct {
	Why string
	CQE [64]byte // as the device has written it
}

func (e *CQEError) Error() string {
	return fmt.Sprintf("an entry in the completion queue %s: %x", e.Why, e.CQE)
}
