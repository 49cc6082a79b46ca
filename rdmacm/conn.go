package rdmacm

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A Conn is a reliable connection that carries messages, with all that belongs
// to it: a protection domain, a queue pair, its CQs and registered buffers. Its
// methods are safe for concurrent use.
//
// The receive buffers are posted before the peer can send, and each is posted
// again when Recv has taken what was in it. A peer that sends faster waits: see
// ConnParam.RNRRetryCount.
type Conn struct {
	id     *ID
	peer   ConnParam
	pd     *verbs.PD
	qp     *verbs.QP
	sendCQ *verbs.CQ
	recvCQ *verbs.CQ
	opened []closer // in the order in which they were made

	mr       *verbs.MR // receive slots, then send slots
	slots    int
	slotSize int

	sending, receiving chan struct{} // each holds a token: one goroutine at a time
	posted, completed  uint64        // sends, for whom sending is held

	life    context.Context // ends with the connection, for a reason
	endLife context.CancelCauseFunc

	closeOnce sync.Once
	answerMu  sync.Mutex
	answered  bool           // nothing is left to answer
	answer    sync.WaitGroup // the goroutine that answers the peer's disconnect
}

// newConn makes a connection's parts. The ID has a device; it is closed along
// with the Conn, and by newConn if that fails.
func newConn(id *ID, o *Options) (*Conn, error) {
	c := &Conn{
		id: id, slots: o.Messages, slotSize: o.MessageSize,
		sending: make(chan struct{}, 1), receiving: make(chan struct{}, 1),
	}
	c.sending <- struct{}{}
	c.receiving <- struct{}{}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	id.mu.Lock()
	id.watch = c.watch
	id.mu.Unlock()
	err := c.open(o)
	if err == nil && o.Prepare != nil {
		err = o.Prepare(c)
	}
	if err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

func (c *Conn) open(o *Options) (err error) {
	ctx := c.id.Verbs()
	if c.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	c.opened = append(c.opened, c.pd)
	if c.slots > 0 {
		if c.mr, err = c.pd.AllocMR(max(2*c.slots*c.slotSize, 1), verbs.AccessLocalWrite); err != nil {
			return err
		}
		c.opened = append(c.opened, c.mr)
	}
	channel, err := ctx.CreateCompChannel()
	if err != nil {
		return err
	}
	c.opened = append(c.opened, channel)
	capacity := o.Cap
	capacity.MaxSendWR = max(capacity.MaxSendWR+c.slots, 1)
	capacity.MaxRecvWR = max(capacity.MaxRecvWR+c.slots, 1)
	capacity.MaxSendSGE = max(capacity.MaxSendSGE, 1)
	capacity.MaxRecvSGE = max(capacity.MaxRecvSGE, 1)
	if c.sendCQ, err = ctx.CreateCQ(verbs.CQOptions{CQE: capacity.MaxSendWR, Channel: channel}); err != nil {
		return err
	}
	c.opened = append(c.opened, c.sendCQ)
	if c.recvCQ, err = ctx.CreateCQ(verbs.CQOptions{CQE: capacity.MaxRecvWR, Channel: channel}); err != nil {
		return err
	}
	c.opened = append(c.opened, c.recvCQ)
	if c.qp, err = c.id.CreateQP(c.pd, verbs.QPOptions{SendCQ: c.sendCQ, RecvCQ: c.recvCQ, Cap: capacity}); err != nil {
		return err
	}
	c.opened = append(c.opened, closeFunc(c.id.dropQueues))
	for slot := range c.slots {
		if err := c.postRecv(slot); err != nil {
			return err
		}
	}
	return nil
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

func (c *Conn) postRecv(slot int) error {
	_, err := c.qp.PostRecv(verbs.RecvWR{WRID: uint64(slot), SGL: c.sge(slot, c.slotSize)})
	return err
}

// sge returns n bytes of a slot; receive slots come first.
func (c *Conn) sge(slot, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return []verbs.SGE{c.mr.SGE(slot*c.slotSize, n)}
}

// watch hears of the connection's end. It must not wait.
func (c *Conn) watch(e *Event) {
	switch e.Type {
	case Disconnected:
		c.endLife(ErrDisconnected)
		c.answerPeer()
	case Rejected: // by a peer that has accepted, and was gone before it heard that it is connected
		c.endLife(ErrDisconnected)
	case DeviceRemoval:
		c.endLife(ErrDeviceRemoved)
	}
}

// answerPeer answers the peer that has ended the connection. That it may fail
// is of no consequence.
func (c *Conn) answerPeer() {
	c.answerMu.Lock()
	defer c.answerMu.Unlock()
	if c.answered {
		return
	}
	c.answered = true
	c.answer.Go(func() {
		if c.id.begin(opDisconnect) == nil {
			c.id.disconnectHeld()
			c.id.end()
		}
	})
}

// ID returns the connection's ID.
func (c *Conn) ID() *ID { return c.id }

// PD returns the connection's protection domain, for memory of the caller's own,
// which must be closed before the Conn.
func (c *Conn) PD() *verbs.PD { return c.pd }

// QP returns the connection's queue pair.
func (c *Conn) QP() *verbs.QP { return c.qp }

// SendCQ returns the CQ for sends. PollWait works on it.
func (c *Conn) SendCQ() *verbs.CQ { return c.sendCQ }

// RecvCQ returns the CQ for receives. PollWait works on it.
func (c *Conn) RecvCQ() *verbs.CQ { return c.recvCQ }

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.id.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.id.RemoteAddr() }

// Peer returns what the peer sent with its request, or its answer: the private
// data among it.
func (c *Conn) Peer() ConnParam { return c.peer }

// MaxMessage returns how many bytes a message has at most. The peer's buffers
// may be smaller.
func (c *Conn) MaxMessage() int { return c.slotSize }

// Done returns a channel that is closed when the connection has ended: by the
// peer, by the device's removal or by Close.
func (c *Conn) Done() <-chan struct{} { return c.life.Done() }

// Err returns nil while there is a connection, and then why there is none:
// ErrDisconnected, ErrDeviceRemoved or ErrClosed.
func (c *Conn) Err() error { return context.Cause(c.life) }

const (
	opSend = "send"
	opRecv = "receive"
)

// Send sends a message, and returns when the peer has it in a buffer. If the
// context ends earlier, it may still arrive.
func (c *Conn) Send(ctx context.Context, b []byte) error {
	if len(b) > c.slotSize {
		return invalid(opSend, "the message has %d bytes: at most %d", len(b), c.slotSize)
	}
	if err := c.enter(ctx, opSend, c.sending); err != nil {
		return err
	}
	defer leave(c.sending)
	if err := c.Err(); err != nil {
		return opErr(opSend, "", err)
	}
	for c.posted-c.completed == uint64(c.slots) {
		if err := c.reap(ctx); err != nil {
			return opErr(opSend, "", err)
		}
	}
	slot := c.slots + int(c.posted%uint64(c.slots))
	copy(c.mr.Bytes()[slot*c.slotSize:][:c.slotSize], b)
	if _, err := c.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.sge(slot, len(b))}); err != nil {
		return opErr(opSend, "", c.reason(err))
	}
	c.posted++
	for mine := c.posted; c.completed < mine; {
		if err := c.reap(ctx); err != nil {
			return opErr(opSend, "", err)
		}
	}
	return nil
}

// reap takes the completion of one send.
func (c *Conn) reap(ctx context.Context) error {
	wc, err := c.completion(ctx, c.sendCQ)
	if err != nil {
		return err
	}
	c.completed++
	if err := wc.Err(); err != nil {
		return c.reason(err)
	}
	return nil
}

// Recv waits for a message, copies it to b and returns its length. If b is too
// small, the rest is lost and the error is io.ErrShortBuffer. After the peer has
// disconnected, and all that it sent has been taken, the error is io.EOF.
func (c *Conn) Recv(ctx context.Context, b []byte) (int, error) {
	if err := c.enter(ctx, opRecv, c.receiving); err != nil {
		return 0, err
	}
	defer leave(c.receiving)
	wc, err := c.completion(ctx, c.recvCQ)
	if err == nil {
		if err = wc.Err(); err != nil {
			err = c.reason(err)
		}
	}
	if errors.Is(err, ErrDisconnected) {
		return 0, io.EOF
	}
	if err != nil {
		return 0, opErr(opRecv, "", err)
	}
	slot := int(wc.WRID)
	n := copy(b, c.mr.Bytes()[slot*c.slotSize:][:wc.ByteLen])
	// Of a connection that has ended, the rest can still be taken.
	if err := c.postRecv(slot); err != nil && c.Err() == nil {
		return n, opErr(opRecv, "", err)
	}
	if n < int(wc.ByteLen) {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// enter waits for its turn to send or to receive.
func (c *Conn) enter(ctx context.Context, op string, turn chan struct{}) error {
	if ctx == nil {
		return &OpError{Op: op, Err: errNoContext}
	}
	if c.slots == 0 {
		return invalid(op, "the connection was made without buffers for messages")
	}
	select {
	case <-turn:
	case <-ctx.Done():
		return opErr(op, "", ctx.Err())
	}
	if c.Err() == ErrClosed {
		leave(turn)
		return opErr(op, "", ErrClosed)
	}
	return nil
}

func leave(turn chan struct{}) { turn <- struct{}{} }

// completion waits for a completion, as long as there is a connection.
func (c *Conn) completion(ctx context.Context, cq *verbs.CQ) (*verbs.WC, error) {
	var wc [1]verbs.WC
	if n, err := cq.Poll(wc[:]); n > 0 || err != nil {
		return &wc[0], err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	n, err := cq.PollWait(ctx, wc[:])
	if n == 0 && c.Err() != nil {
		// What came before the end counts.
		if n, err = cq.Poll(wc[:]); n == 0 {
			return nil, c.reason(err)
		}
	}
	return &wc[0], err
}

// reason returns why work failed: the end of the connection, if it has ended.
func (c *Conn) reason(err error) error {
	if end := c.Err(); end != nil {
		return end
	}
	return err
}

// closePatience is how long Close waits for the peer to answer.
const closePatience = 500 * time.Millisecond

// Close ends the connection: the peer is told, and given half a second to
// answer. Sends and receives under way end with ErrClosed. Then it closes all
// that belongs to the connection, in the right order. If something of the
// caller's own is left on the PD or the CQs, it answers ErrBusy, and may be
// called again.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		open := c.Err() == nil
		c.endLife(ErrClosed)
		if open {
			ctx, cancel := context.WithTimeout(context.Background(), closePatience)
			// That the peer is dead is no reason to fail.
			c.id.Disconnect(ctx)
			cancel()
		}
	})
	<-c.sending
	<-c.receiving
	defer leave(c.sending)
	defer leave(c.receiving)
	return c.release()
}

// release closes what belongs to the connection.
func (c *Conn) release() error {
	c.endLife(ErrClosed)
	c.answerMu.Lock()
	c.answered = true
	c.answerMu.Unlock()
	c.answer.Wait()
	for len(c.opened) > 0 {
		last := len(c.opened) - 1
		if err := c.opened[last].Close(); err != nil {
			return err
		}
		c.opened = c.opened[:last]
	}
	return c.id.Close()
}
