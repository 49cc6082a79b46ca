package rdmacm

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

const (
	opWrite       = "RDMA write"
	opRead        = "RDMA read"
	opCompareSwap = "compare-and-swap"
	opFetchAdd    = "fetch-and-add"
	opRecvWrite   = "receive RDMA write"
)

// Write writes local memory, as MR.SGE describes it, to the peer's memory, and returns when the
// data is there. If the context ends earlier, the write is still executed, and the memory is in
// use until Flush or Drain returns or the connection is closed.
func (c *Conn) Write(ctx context.Context, local verbs.SGE, remote verbs.Remote) error {
	_, err := c.do(ctx, opWrite, writeOf(local, remote, nil))
	return err
}

// WriteImm is like Write, with immediate data for the peer's RecvWrite. It consumes one of
// the peer's receive buffers, which the peer's RecvWrite posts again.
func (c *Conn) WriteImm(ctx context.Context, local verbs.SGE, remote verbs.Remote, imm uint32) error {
	r := writeOf(local, remote, nil)
	r.Opcode, r.Imm = verbs.OpRDMAWriteImm, imm
	_, err := c.do(ctx, opWrite, r)
	return err
}

// Read reads the peer's memory, and returns when the data is in local memory. If the context ends
// earlier, see Write.
func (c *Conn) Read(ctx context.Context, local verbs.SGE, remote verbs.Remote) error {
	_, err := c.do(ctx, opRead, readOf(local, remote, nil))
	return err
}

// CompareSwap replaces a uint64 in the peer's memory if its value is old, and returns the previous
// value. The uint64 is in the byte order of the peer's processor, at a multiple of 8. If the context
// ends earlier, the operation may still be executed: a caller that takes a lock this way must Read the
// lock before it tries again or gives up.
func (c *Conn) CompareSwap(ctx context.Context, remote verbs.Remote, old, new uint64) (before uint64, err error) {
	wr := verbs.SendWR{Opcode: verbs.OpCompareSwap, Remote: remote, Compare: old, Swap: new}
	return c.do(ctx, opCompareSwap, &request{SendWR: wr, want: verbs.WCCompareSwap})
}

// FetchAdd adds to a uint64 in the peer's memory, and returns the previous value. The rules are those
// of CompareSwap.
func (c *Conn) FetchAdd(ctx context.Context, remote verbs.Remote, add uint64) (before uint64, err error) {
	wr := verbs.SendWR{Opcode: verbs.OpFetchAdd, Remote: remote, Add: add}
	return c.do(ctx, opFetchAdd, &request{SendWR: wr, want: verbs.WCFetchAdd})
}

// PostWrite begins a Write. It waits while Options.Messages requests are in flight. If the context
// ends meanwhile, nothing is written. Flush waits for all posted requests. done, unless nil, is
// called once with the outcome, when the memory is free again. The outcome is ErrClosed if
// the connection was closed first. done must not block. If PostWrite fails, done is not
// called.
func (c *Conn) PostWrite(ctx context.Context, local verbs.SGE, remote verbs.Remote, done func(error)) error {
	return c.postLater(ctx, opWrite, writeOf(local, remote, done))
}

// PostRead begins a Read, as PostWrite begins a Write.
func (c *Conn) PostRead(ctx context.Context, local verbs.SGE, remote verbs.Remote, done func(error)) error {
	return c.postLater(ctx, opRead, readOf(local, remote, done))
}

// RecvWrite waits for a write of the peer with immediate data. It returns the immediate data and the
// number of bytes written. The errors are those of Recv.
func (c *Conn) RecvWrite(ctx context.Context) (imm uint32, n int, err error) {
	if err := c.begin(ctx, opRecvWrite); err != nil {
		return 0, 0, err
	}
	defer c.use.RUnlock()
	imm, n, err = c.messages.recvWrite(ctx)
	return imm, n, c.endedRecv(opRecvWrite, err)
}

func writeOf(local verbs.SGE, remote verbs.Remote, done func(error)) *request {
	return &request{SendWR: verbs.SendWR{Opcode: verbs.OpRDMAWrite, Remote: remote}, local: local, want: verbs.WCRDMAWrite, done: done}
}

func readOf(local verbs.SGE, remote verbs.Remote, done func(error)) *request {
	return &request{SendWR: verbs.SendWR{Opcode: verbs.OpRDMARead, Remote: remote}, local: local, want: verbs.WCRDMARead, done: done}
}

func (c *Conn) do(ctx context.Context, op string, r *request) (before uint64, err error) {
	if err := c.begin(ctx, op); err != nil {
		return 0, err
	}
	defer c.use.RUnlock()
	before, err = c.messages.do(ctx, r)
	return before, c.ended(op, err)
}

func (c *Conn) postLater(ctx context.Context, op string, r *request) error {
	if err := c.begin(ctx, op); err != nil {
		return err
	}
	defer c.use.RUnlock()
	return c.ended(op, c.messages.postLater(ctx, r))
}
