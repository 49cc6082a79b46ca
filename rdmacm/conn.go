package rdmacm

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// A Conn is a reliable connection that carries messages. It owns a protection
// domain, a queue pair, its CQs and registered buffers. Its methods are safe for
// concurrent use.
//
// # Sending
//
// Send waits until its message has arrived. Post doesn't: it returns when the
// message is on its way, and Flush waits until all messages posted so far have
// arrived. Both copy the message to one of the connection's buffers.
// Options.Messages is the number of these, and so of messages in flight; if all
// are in use, Post waits for one. SendBuffer lends a buffer to the caller, who
// writes the message there and posts it without a copy.
//
// Messages arrive in the order in which they are sent, and none is lost while the
// connection lasts. If one can't be delivered, the connection ends, and every
// call returns the reason.
//
// # Receiving
//
// The receive buffers are posted before the peer can send. Recv copies a message
// out of its buffer and posts the buffer again. RecvBuffer lends the buffer to
// the caller, and Release posts it. While no buffer is posted, the peer's
// messages wait: see ConnParam.RNRRetryCount. Each such wait takes 0.64 ms or more,
// so a fast sender should know, from the peer's answers, that there are buffers,
// as with a window of Options.Messages. The connection ends if the peer consumes a
// receive buffer with anything but a message that fits: Err says what it was.
//
// # Waiting
//
// A call that waits ends when its context or the connection does. A Send that was
// cancelled may still arrive: it is sent from the connection's own buffer, and the
// caller's bytes are free. Any other call that was cancelled has done nothing: it
// has sent no message, and lost none. A call that need not wait allocates nothing.
//
// Completions are collected by the calls that wait for something, and by no
// goroutine of the connection's own. So a failure shows in Done and Err only once
// such a call is made.
//
// A peer that vanishes without a word is noticed by what is sent to it, after the
// retries of ConnParam.RetryCount. A connection on which nothing is sent doesn't
// notice: give Recv a context that ends, or have the peers send something now and then.
//
// # The caller's own requests
//
// The caller may post requests of its own on the queue pair, such as RDMA reads
// and writes, as many as Options.Cap allows, with WRIDs below ReservedWRIDs.
// SendCompletions and RecvCompletions return their completions, whatever else the
// connection is used for meanwhile.
type Conn struct {
	id     *SyncID
	iwarp  bool // the device speaks iWARP
	peer   ConnParam
	pd     *verbs.PD
	qp     *verbs.QP
	sendCQ *verbs.CQ
	recvCQ *verbs.CQ
	opened []closer // in the order of their creation

	slots    int
	slotSize int
	messages *messages // nil without slots

	life    context.Context // ends with the connection; its cause is the reason
	endLife context.CancelCauseFunc

	use     sync.RWMutex // held for reading while something that Close closes is in use
	closing atomic.Bool

	partMu sync.Mutex
	parted bool           // the peer has been, or is being, told of the end
	part   sync.WaitGroup // the goroutine that does it
}

// newConn makes a connection's parts. The ID must have a device. It is closed
// along with the Conn, or by newConn if that fails.
func newConn(id *SyncID, o *Options) (*Conn, error) {
	c := &Conn{id: id, iwarp: id.iwarp(), slots: o.Messages, slotSize: o.MessageSize}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	id.mu.Lock()
	id.watch = c.watch
	id.mu.Unlock()
	err := c.open(o)
	if err == nil && o.Prepare != nil {
		err = o.Prepare(c)
	}
	if err != nil {
		return nil, join(err, c.release())
	}
	return c, nil
}

func (c *Conn) open(o *Options) (err error) {
	ctx := c.id.Device()
	if c.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	c.opened = append(c.opened, c.pd)
	var mr *verbs.MR
	if c.slots > 0 {
		if mr, err = c.pd.AllocMR(2*c.slots*c.slotSize, verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
			return err
		}
		c.opened = append(c.opened, mr, closeFunc(c.noneLent))
	}
	channel, err := ctx.CreateCompChannel()
	if err != nil {
		return err
	}
	c.opened = append(c.opened, channel)
	capacity := o.Cap
	capacity.MaxSendWR = max(capacity.MaxSendWR+c.slots, 1)
	capacity.MaxRecvWR = max(capacity.MaxRecvWR+c.slots, 1)
	if c.slots > 0 {
		capacity.MaxSendSGE = max(capacity.MaxSendSGE, 1)
		capacity.MaxRecvSGE = max(capacity.MaxRecvSGE, 1)
	}
	if c.sendCQ, err = ctx.CreateCQ(verbs.CQOptions{MaxCQE: capacity.MaxSendWR, Channel: channel}); err != nil {
		return err
	}
	c.opened = append(c.opened, c.sendCQ)
	if c.recvCQ, err = ctx.CreateCQ(verbs.CQOptions{MaxCQE: capacity.MaxRecvWR, Channel: channel}); err != nil {
		return err
	}
	c.opened = append(c.opened, c.recvCQ)
	if c.qp, err = c.id.CreateQP(c.pd, verbs.QPOptions{SendCQ: c.sendCQ, RecvCQ: c.recvCQ, Cap: capacity}); err != nil {
		return err
	}
	c.opened = append(c.opened, closeFunc(c.id.dropQueues))
	if c.slots == 0 {
		return nil
	}
	c.messages = newMessages(c.slots, c.slotSize, mr.Bytes(), mr.SGE, c.qp, c.sendCQ, c.recvCQ, c.life, c.fail)
	return c.messages.start()
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// noneLent returns ErrBusy while the caller holds buffers.
func (c *Conn) noneLent() error {
	if c.messages == nil {
		return nil
	}
	return c.messages.noneLent()
}

// fail ends a broken connection. It must not block. When the peer ends a connection over
// iWARP, the kernel flushes the work requests before it reports the event.
func (c *Conn) fail(err error) {
	if c.iwarp && flushed(c.messages.why(err)) {
		err = ErrDisconnected
	}
	c.endLife(err)
	c.tellPeer()
}

// watch notes events that end the connection. It must not block.
func (c *Conn) watch(e *Event) {
	switch e.Type {
	case EventDisconnected, EventTimewaitExit:
		c.endLife(ErrDisconnected)
		c.tellPeer()
	case EventRejected: // by a peer that accepted, then left before the connection was established
		c.endLife(ErrDisconnected)
	case EventConnectError:
		c.endLife(ErrConnect)
		c.tellPeer()
	case EventUnreachable:
		c.endLife(errPeerMoved)
		c.tellPeer()
	case EventAddrChange:
		c.endLife(errMoved)
		c.tellPeer()
	case EventDeviceRemoval:
		c.endLife(ErrDeviceRemoved)
	}
}

// A queue pair keeps the link-layer addresses that it was connected with.
var (
	errPeerMoved = fmt.Errorf("%w: the link-layer address of the neighbour on the way to it has changed", ErrUnreachable)
	errMoved     = fmt.Errorf("%w: the address of this end has moved to another network interface", ErrUnreachable)
)

// tellPeer tells the peer that the connection has ended, or confirms that to it.
// A failure has no consequence.
func (c *Conn) tellPeer() {
	c.partMu.Lock()
	defer c.partMu.Unlock()
	if !c.parted {
		c.parted = true
		c.part.Go(c.disconnect)
	}
}

func (c *Conn) disconnect() {
	if c.id.begin(opDisconnect) == nil {
		c.id.disconnectHeld()
		c.id.end()
	}
}

// ID returns the connection's ID.
func (c *Conn) ID() *SyncID { return c.id }

// PD returns the connection's protection domain. Memory regions that the caller
// registers on it must be closed before the Conn.
func (c *Conn) PD() *verbs.PD { return c.pd }

// QP returns the connection's queue pair.
func (c *Conn) QP() *verbs.QP { return c.qp }

// SendCQ returns the CQ for sends. It is nil for a connection with messages, which
// polls the CQ itself: see SendCompletions.
func (c *Conn) SendCQ() *verbs.CQ {
	if c.messages != nil {
		return nil
	}
	return c.sendCQ
}

// RecvCQ returns the CQ for receives. It is nil for a connection with messages, which
// polls the CQ itself: see RecvCompletions.
func (c *Conn) RecvCQ() *verbs.CQ {
	if c.messages != nil {
		return nil
	}
	return c.recvCQ
}

// LocalAddr returns the address of this end, an Addr.
func (c *Conn) LocalAddr() net.Addr { return Addr{c.id.ps, c.id.LocalAddr()} }

// RemoteAddr returns the address of the peer, an Addr.
func (c *Conn) RemoteAddr() net.Addr { return Addr{c.id.ps, c.id.RemoteAddr()} }

// Peer returns the parameters that came with the peer's request or answer,
// including its private data.
func (c *Conn) Peer() ConnParam { return c.peer }

// MaxMessage returns the maximum length of a message in bytes. The peer's
// buffers may be smaller.
func (c *Conn) MaxMessage() int { return c.slotSize }

// Done returns a channel that is closed when the connection ends: by the peer,
// by the device's removal, by a change of addresses, by an error or by Close.
func (c *Conn) Done() <-chan struct{} { return c.life.Done() }

// Err returns nil while the connection lasts. Then it returns why it ended:
// ErrDisconnected, ErrDeviceRemoved, ErrUnreachable or ErrClosed, or the error that
// broke it, a *verbs.WCError or ErrNotMessage.
func (c *Conn) Err() error {
	err := context.Cause(c.life)
	if err != nil && c.messages != nil {
		return c.messages.why(err)
	}
	return err
}

// Close ends the connection. It tells the peer, without waiting for an answer.
// Messages that have not arrived are lost: Flush waits for those that were
// posted. Pending calls return ErrClosed. Then Close closes all objects of the
// connection, in order. If the caller has not released a buffer, whose memory
// therefore stays, or if the caller's own objects remain on the PD or the CQs,
// Close returns ErrBusy and may be called again. Closing a closed Conn, or a nil one,
// does nothing.
func (c *Conn) Close() error {
	if c == nil {
		return nil
	}
	c.endLife(ErrClosed) // first, so that a refused call finds the reason in Err
	c.closing.Store(true)
	c.partMu.Lock()
	first := !c.parted
	c.parted = true
	c.partMu.Unlock()
	if first {
		c.disconnect()
	}
	c.use.Lock()
	defer c.use.Unlock()
	return c.release()
}

// release closes the objects of the connection.
func (c *Conn) release() error {
	c.endLife(ErrClosed)
	c.partMu.Lock()
	c.parted = true
	c.partMu.Unlock()
	c.part.Wait()
	for len(c.opened) > 0 {
		last := len(c.opened) - 1
		if err := c.opened[last].Close(); err != nil {
			return err
		}
		c.opened = c.opened[:last]
	}
	return c.id.Close()
}
