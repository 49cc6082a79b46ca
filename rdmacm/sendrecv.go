package rdmacm

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/verbs"
)

const (
	opSend  = "send"
	opFlush = "flush"
	opRecv  = "receive"
)

// Send sends a message and returns when it is in one of the peer's buffers. If
// the context ends earlier, the message may still arrive. Several goroutines may
// send at once.
func (c *Conn) Send(ctx context.Context, b []byte) error {
	if err := c.beginSend(ctx, len(b)); err != nil {
		return err
	}
	defer c.use.RUnlock()
	return c.ended(opSend, c.messages.send(ctx, b))
}

// Post sends a message and returns when a copy of it is on its way: b may be
// reused. It waits while all send buffers are in use. If the context ends
// meanwhile, the message is not sent. Flush waits until it has arrived.
func (c *Conn) Post(ctx context.Context, b []byte) error {
	if err := c.beginSend(ctx, len(b)); err != nil {
		return err
	}
	defer c.use.RUnlock()
	_, err := c.messages.postCopy(ctx, b, false)
	return c.ended(opSend, err)
}

// Flush waits until all messages that were posted before it have arrived in the
// peer's buffers. If one can't arrive, Flush returns why. Messages of other
// goroutines that are posted meanwhile don't delay it. If the context ends
// earlier, the messages remain on their way.
func (c *Conn) Flush(ctx context.Context) error {
	if err := c.begin(ctx, opFlush); err != nil {
		return err
	}
	defer c.use.RUnlock()
	return c.ended(opFlush, c.messages.flush(ctx))
}

// Recv waits for a message, copies it to b and returns its length. If b is too small, the rest of
// the message is lost and the error is io.ErrShortBuffer. Immediate data is not reported. Once the
// peer has disconnected and all of its messages have been received, the error is io.EOF. The kernel
// disconnects for a process that ends, however it ends. So io.EOF doesn't mean that the peer has
// sent everything it meant to send.
func (c *Conn) Recv(ctx context.Context, b []byte) (int, error) {
	if err := c.begin(ctx, opRecv); err != nil {
		return 0, err
	}
	defer c.use.RUnlock()
	n, err := c.messages.recv(ctx, b)
	if err == io.ErrShortBuffer {
		return n, err
	}
	return n, c.endedRecv(opRecv, err)
}

// A SendBuffer is one of a connection's buffers for sends, which the caller
// fills. Post or Release gives it back to the connection. After that, Post returns an error,
// and Release does nothing. Copies of a SendBuffer stand for the same buffer. Its methods are
// safe for concurrent use.
type SendBuffer struct {
	c    *Conn
	slot int
	loan loan
}

// SendBuffer waits for a send buffer that is not in use, and lends it to the
// caller.
func (c *Conn) SendBuffer(ctx context.Context) (SendBuffer, error) {
	if err := c.begin(ctx, opSend); err != nil {
		return SendBuffer{}, err
	}
	defer c.use.RUnlock()
	slot, err := c.messages.takeSlot(ctx)
	if err != nil {
		return SendBuffer{}, c.ended(opSend, err)
	}
	return SendBuffer{c, slot, c.messages.lend(&c.messages.sendSlot[slot].loan)}, nil
}

// Bytes returns the buffer, Conn.MaxMessage bytes. It may contain an earlier
// message. The bytes must not be used after Post or Release. Bytes is nil from
// then on.
func (b SendBuffer) Bytes() []byte {
	if b.c == nil || !b.c.messages.isLent(b.owner(), b.loan) {
		return nil
	}
	return b.c.messages.sendBytes(b.slot)
}

// Post sends the first n bytes and returns when the message is on its way, as
// Conn.Post does. It never waits. The buffer goes back to the connection even if Post fails.
func (b SendBuffer) Post(n int) error {
	if b.c == nil {
		return invalid(opSend, "the SendBuffer is not a connection's")
	}
	b.c.use.RLock()
	defer b.c.use.RUnlock()
	m := b.c.messages
	if !m.takeBack(b.owner(), b.loan) {
		return invalid(opSend, "the buffer was posted or released before")
	}
	var err error
	switch {
	case n < 0 || n > m.size:
		err = invalid(opSend, "the message has %d bytes: at most %d", n, m.size)
	case b.c.life.Err() != nil:
		err = b.c.ended(opSend, errOver)
	default:
		return b.c.ended(opSend, m.post(b.slot, n, false))
	}
	m.free <- b.slot
	return err
}

// Release returns the buffer without sending anything.
func (b SendBuffer) Release() {
	if b.c != nil && b.c.messages.takeBack(b.owner(), b.loan) {
		b.c.messages.free <- b.slot
	}
}

func (b SendBuffer) owner() *loan { return &b.c.messages.sendSlot[b.slot].loan }

// A RecvBuffer is one of a connection's buffers for receives, with a message in
// it. The caller has it until Release, even if the connection ends. Copies of a RecvBuffer
// stand for the same buffer. Its methods are safe for concurrent use.
type RecvBuffer struct {
	c       *Conn
	slot, n int
	loan    loan
}

// RecvBuffer waits for a message, as Recv does, and lends its buffer to the
// caller.
func (c *Conn) RecvBuffer(ctx context.Context) (RecvBuffer, error) {
	if err := c.begin(ctx, opRecv); err != nil {
		return RecvBuffer{}, err
	}
	defer c.use.RUnlock()
	a, err := await(ctx, &c.messages.recvs, c.messages.arrived)
	if err != nil {
		return RecvBuffer{}, c.endedRecv(opRecv, err)
	}
	return RecvBuffer{c, a.slot, a.n, c.messages.lend(&c.messages.recvSlot[a.slot].loan)}, nil
}

// Bytes returns the message. The bytes must not be used after Release, when the
// next message may overwrite them. Bytes is nil from then on.
func (b RecvBuffer) Bytes() []byte {
	if b.c == nil || !b.c.messages.isLent(b.owner(), b.loan) {
		return nil
	}
	return b.c.messages.recvBytes(b.slot, b.n)
}

// Release makes the buffer available for another message. A second Release does
// nothing.
func (b RecvBuffer) Release() {
	if b.c == nil {
		return
	}
	b.c.use.RLock()
	defer b.c.use.RUnlock()
	if b.c.messages.takeBack(b.owner(), b.loan) {
		b.c.messages.repost(b.slot) // a failure ends the connection
	}
}

func (b RecvBuffer) owner() *loan { return &b.c.messages.recvSlot[b.slot].loan }

// WaitSends waits for completions of the caller's own requests on the send
// queue, and returns their number, as PollWait does. It is for a connection with
// messages. Completions are kept until they are taken here. After the connection
// has ended, WaitSends returns the remaining completions, and then the reason
// for the end.
func (c *Conn) WaitSends(ctx context.Context, wcs []verbs.WC) (int, error) {
	return c.completions(ctx, "wait for sends", wcs, func(m *messages) *completions { return &m.sends })
}

// WaitRecvs is like WaitSends, for the receive queue.
func (c *Conn) WaitRecvs(ctx context.Context, wcs []verbs.WC) (int, error) {
	return c.completions(ctx, "wait for receives", wcs, func(m *messages) *completions { return &m.recvs })
}

func (c *Conn) completions(ctx context.Context, op string, wcs []verbs.WC, of func(*messages) *completions) (int, error) {
	if len(wcs) == 0 {
		return 0, invalid(op, "no room for a completion")
	}
	if err := c.begin(ctx, op); err != nil {
		return 0, err
	}
	defer c.use.RUnlock()
	n, err := of(c.messages).callersCompletions(ctx, wcs)
	if err != nil {
		return 0, opErr(op, "", c.reason(err))
	}
	return n, nil
}

// beginSend is like begin, for a message of n bytes.
func (c *Conn) beginSend(ctx context.Context, n int) error {
	if n > c.slotSize {
		return invalid(opSend, "the message has %d bytes: at most %d", n, c.slotSize)
	}
	return c.begin(ctx, opSend)
}

// begin keeps Close from closing anything until use is unlocked.
func (c *Conn) begin(ctx context.Context, op string) error {
	switch {
	case ctx == nil:
		return &OpError{Op: op, Err: errNoContext}
	case c.messages == nil:
		return invalid(op, "the connection was made without buffers for messages")
	case ctx.Err() != nil:
		return opErr(op, "", ctx.Err())
	}
	c.use.RLock()
	if c.closing.Load() {
		c.use.RUnlock()
		return opErr(op, "", ErrClosed)
	}
	return nil
}

// ended returns the error of a call that has failed with err. If the connection
// has ended, the error has the reason for that.
func (c *Conn) ended(op string, err error) error {
	if err == nil {
		return nil
	}
	return opErr(op, "", c.reason(err))
}

// endedRecv is like ended, for a receive.
func (c *Conn) endedRecv(op string, err error) error {
	if err != nil && errors.Is(c.Err(), ErrDisconnected) {
		return io.EOF
	}
	return c.ended(op, err)
}

// reason returns why a call failed. If the connection has ended, that is the
// reason.
func (c *Conn) reason(err error) error {
	if end := c.Err(); end != nil {
		return end
	}
	return err
}
