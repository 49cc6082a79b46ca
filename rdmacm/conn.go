package rdmacm

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// A Conn is a reliable connection that carries messages. It owns a protection
// domain, a queue pair, its CQs and registered buffers, except for those that its
// Transport shares. Its methods are safe for concurrent use.
//
// # Sending
//
// Send waits until its message has arrived. Post doesn't: it returns when the
// message is on its way, and Flush waits until all messages posted so far have
// arrived. Both copy the message to one of the connection's buffers.
// Options.Messages is the number of these buffers, and so of messages in flight. If all are
// in use, Post waits for a buffer. SendBuffer lends a buffer to the caller, who writes the
// message there and posts it without a copy.
//
// Messages arrive in the order in which they are sent, and none is lost while the
// connection lasts. If a message can't be delivered, the connection ends, and every call
// returns the reason.
//
// # Receiving
//
// The receive buffers are posted before the peer can send. Recv copies a message
// out of its buffer and posts the buffer again. RecvBuffer lends the buffer to
// the caller, and Release posts it. While no buffer is posted, the peer's
// messages wait: see ConnParam.RNRRetryCount. Each such wait takes 0.64 ms or more. So a fast
// sender should learn from the peer's answers that there are buffers: it has at most
// Options.Messages unanswered messages, for example. The connection ends if anything but a
// message that fits consumes a receive buffer. Err reports what it was.
//
// # Waiting
//
// A call that waits ends when its context or the connection does. A Send that was
// cancelled may still arrive: it is sent from the connection's own buffer, and the
// caller's bytes are free. Any other call that was cancelled has done nothing: it
// has sent no message, and lost none. A call that need not wait allocates nothing.
//
// If a request fails, the queue pair breaks, and the connection ends: each call that waits
// returns, and Err has the failure. Calls that wait collect the completions. If no call
// waits, Err collects them. Once Done was called, the goroutine that waits for the device's
// events collects them, too.
//
// If the peer vanishes, a send to it fails after the retries of ConnParam.RetryCount,
// and the connection ends. A connection that sends nothing doesn't notice: give Recv a
// context that ends, or have the peers send something now and then.
//
// # The caller's own requests
//
// Write, Read, CompareSwap and FetchAdd are one-sided operations on the peer's memory. They wait
// for the outcome. PostWrite and PostRead don't. Each uses the slot of a message, so
// Options.Messages bounds how many are in flight. RecvWrite receives the immediate data of the
// peer's writes.
//
// The queue pair lets the peer read, write and execute atomic operations wherever a memory region
// allows the access.
//
// The caller may post other requests of its own on the queue pair, as many as Options.Cap allows,
// with WRIDs below ReservedWRIDs. WaitSends and WaitRecvs return their
// completions, whatever else the connection is used for meanwhile.
//
// # Memory
//
// A connection locks 2·Options.Messages·Options.MessageSize bytes, 32 KiB by default, and some
// pages for its queues. Transport.Pool makes connections share registrations. See also
// [verbs.RaiseMemlock].
type Conn struct {
	id     *SyncID
	iwarp  bool // the device speaks iWARP
	peer   ConnParam
	pd     *verbs.PD
	qp     *verbs.QP
	sendCQ *verbs.CQ
	recvCQ *verbs.CQ
	opened []closer // in the order in which they were opened
	shared *Transport

	ownMu sync.Mutex
	owned []io.Closer // see Own

	slots    int
	slotSize int
	messages *messages // nil without slots

	life    context.Context // ends with the connection; its cause is the reason
	endLife context.CancelCauseFunc

	use     sync.RWMutex // held for reading while an object that Close closes is in use
	closing atomic.Bool

	notifyMu     sync.Mutex
	peerNotified bool           // the peer has been, or is being, notified of the end
	notifying    sync.WaitGroup // the goroutine that notifies the peer
}

// newConn makes a connection's parts, and returns the parameters for the peer. The ID must
// have a device. The Conn owns the ID, which newConn closes if it fails.
func newConn(id *SyncID, t *Transport, o *Options, param *ConnParam) (*Conn, *ConnParam, error) {
	c := &Conn{id: id, iwarp: id.iwarp(), shared: t, slots: o.Messages, slotSize: o.MessageSize}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	id.mu.Lock()
	id.watch = c.watch
	id.mu.Unlock()
	p := new(ConnParam)
	if param != nil {
		*p = *param
	}
	err := c.open(o)
	if err == nil && o.Prepare != nil {
		err = o.Prepare(c, p)
	}
	if err != nil {
		return nil, nil, join(err, closeInTime(closeFunc(c.release)))
	}
	return c, p, nil
}

func (c *Conn) open(o *Options) (err error) {
	t, capacity := c.shared, o.Cap
	if err := t.add(); err != nil {
		return err
	}
	c.opens(closeFunc(func() error { t.remove(c); return nil }))
	dev := c.id.Device()
	if t.PD != nil {
		dev = t.PD.Device()
	}
	capacity.MaxSendWR = max(capacity.MaxSendWR, 1) // siw needs both queues
	if t.SRQ == nil {
		capacity.MaxRecvWR = max(capacity.MaxRecvWR, 1)
	}
	var channel *verbs.CompChannel
	switch {
	case c.slots > 0:
		limits, err := dev.QueryDevice()
		if err != nil {
			return err
		}
		if c.slots > limits.MaxQPWR { // before the memory for them
			return invalid("make connection", "Messages %d is more than the device's %d", c.slots, limits.MaxQPWR)
		}
		capacity.MaxSendWR += c.slots + 1 // the last one is Drain's
		capacity.MaxRecvWR += c.slots
		capacity.MaxSendSGE = max(capacity.MaxSendSGE, 1)
		capacity.MaxRecvSGE = max(capacity.MaxRecvSGE, 1)
		c.messages = newMessages(c.slots, c.slotSize, c.life, c.fail)
		r, err := joinReader(dev, c.messages)
		if err != nil {
			return err
		}
		c.opens(closeFunc(func() error { return r.leave(c.messages) }))
		channel = r.channel
	case t.SendCQ == nil || t.RecvCQ == nil:
		if channel, err = dev.CreateCompChannel(); err != nil {
			return err
		}
		c.opens(channel)
	}
	if c.sendCQ, err = c.openCQ(t.SendCQ, dev, channel, capacity.MaxSendWR, true); err != nil {
		return err
	}
	if c.recvCQ, err = c.openCQ(t.RecvCQ, dev, channel, capacity.MaxRecvWR, false); err != nil {
		return err
	}
	if c.pd = t.PD; c.pd == nil {
		if c.pd, err = dev.AllocPD(); err != nil {
			return err
		}
		c.opens(closeFunc(c.pd.CloseAll))
	}
	mem, sge, err := c.openMemory()
	if err != nil {
		return err
	}
	c.opens(closeFunc(c.checkLent))
	c.opens(closeFunc(c.closeOwned))
	if c.qp, err = c.id.CreateQP(c.pd, verbs.QPOptions{SendCQ: c.sendCQ, RecvCQ: c.recvCQ, SRQ: t.SRQ, Cap: capacity, SignalAll: o.SignalAll}); err != nil {
		return err
	}
	c.opens(closeFunc(c.dropQP))
	t.addQP(c)
	if c.slots == 0 {
		return nil
	}
	return c.messages.start(mem, sge, c.qp, c.sendCQ, c.recvCQ)
}

// opens makes release close o, before the objects opened earlier.
func (c *Conn) opens(o closer) { c.opened = append(c.opened, o) }

// openCQ returns the shared CQ or, if it is nil, a new one of the connection's own.
func (c *Conn) openCQ(shared *verbs.CQ, dev *verbs.Device, channel *verbs.CompChannel, size int, sends bool) (*verbs.CQ, error) {
	if shared != nil {
		return shared, nil
	}
	o := verbs.CQOptions{MaxCQE: size, Channel: channel}
	switch {
	case c.messages == nil:
	case sends:
		o.Value = &c.messages.sends
	default:
		o.Value = &c.messages.recvs
	}
	cq, err := dev.CreateCQ(o)
	if err != nil {
		return nil, err
	}
	c.opens(cq)
	return cq, nil
}

// openMemory returns the messages' memory, and a function that returns a piece's scatter/gather entry.
func (c *Conn) openMemory() (mem []byte, sge func(off, n int) verbs.SGE, err error) {
	n := messageBytes(c.slots, c.slotSize)
	switch pool := c.shared.Pool; {
	case c.slots == 0:
		return nil, nil, nil
	case pool != nil:
		b, err := pool.Get(n)
		if err != nil {
			return nil, nil, err
		}
		c.opens(closeFunc(func() error { b.Release(); return nil }))
		if b.Bytes() == nil {
			return nil, nil, invalid("use pool", "its memory isn't this host's")
		}
		return b.Bytes(), func(off, n int) verbs.SGE {
			s := b.SGE()
			return verbs.SGE{Addr: s.Addr + uint64(off), Length: uint32(n), LKey: s.LKey}
		}, nil
	}
	mr, err := c.pd.AllocMR(n, verbs.MROptions{Access: verbs.AccessLocalWrite})
	if err != nil {
		return nil, nil, err
	}
	c.opens(mr)
	return mr.Bytes(), mr.SGE, nil
}

// Own hands objects to the connection, such as an MR that Prepare has registered. Close closes
// them after the queue pair, the last one first. If the connection can't be set up, they are
// closed, too. Objects on the connection's own PD need no Own: they are closed with the PD.
func (c *Conn) Own(o ...io.Closer) {
	c.ownMu.Lock()
	defer c.ownMu.Unlock()
	c.owned = append(c.owned, o...)
}

func (c *Conn) closeOwned() error {
	c.ownMu.Lock()
	defer c.ownMu.Unlock()
	for len(c.owned) > 0 {
		last := len(c.owned) - 1
		if err := c.owned[last].Close(); err != nil {
			return err
		}
		c.owned = c.owned[:last]
	}
	return nil
}

// dropQP closes the queue pair. After that, nothing is in flight.
func (c *Conn) dropQP() error {
	err := c.id.dropQueues()
	if err == nil && c.messages != nil {
		c.messages.gone()
	}
	return err
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// checkLent returns ErrBusy while the caller holds buffers.
func (c *Conn) checkLent() error {
	if c.messages == nil {
		return nil
	}
	return c.messages.checkLent()
}

// fail ends a broken connection. It must not block. When the peer ends a connection over
// iWARP, the kernel flushes the work requests before it reports the event.
func (c *Conn) fail(err error) {
	if c.iwarp && flushed(c.messages.why(err)) {
		err = ErrDisconnected
	}
	c.endLife(err)
	c.notifyPeer()
}

// watch notes events that end the connection. It must not block.
func (c *Conn) watch(e *Event) {
	switch e.Type {
	case EventDisconnected, EventTimewaitExit:
		c.endLife(ErrDisconnected)
		c.notifyPeer()
	case EventRejected: // by a peer that accepted, then left before the connection was established
		c.endLife(ErrDisconnected)
	case EventConnectError:
		c.endLife(ErrConnect)
		c.notifyPeer()
	case EventUnreachable:
		c.endLife(errPeerMoved)
		c.notifyPeer()
	case EventAddrChange:
		c.endLife(errMoved)
		c.notifyPeer()
	case EventDeviceRemoval:
		c.endLife(ErrDeviceRemoved)
	}
}

// A queue pair keeps the link-layer addresses that it was connected with.
var (
	errPeerMoved = fmt.Errorf("%w: the link-layer address of the neighbour on the way to it has changed", ErrUnreachable)
	errMoved     = fmt.Errorf("%w: the address of this end has moved to another network interface", ErrUnreachable)
)

// notifyPeer informs the peer that the connection has ended, or confirms the peer's disconnect. A failure
// is ignored.
func (c *Conn) notifyPeer() {
	c.notifyMu.Lock()
	defer c.notifyMu.Unlock()
	if !c.peerNotified {
		c.peerNotified = true
		c.notifying.Go(c.disconnect)
	}
}

func (c *Conn) disconnect() {
	if c.id.begin(opDisconnect) == nil {
		c.id.doDisconnect()
		c.id.end()
	}
}

// ID returns the connection's ID.
func (c *Conn) ID() *SyncID { return c.id }

// PD returns the connection's protection domain: the Transport's, or the connection's own, which Close
// closes with all objects on it.
func (c *Conn) PD() *verbs.PD { return c.pd }

// QP returns the connection's queue pair.
func (c *Conn) QP() *verbs.QP { return c.qp }

// SendCQ returns the CQ for sends. It is nil for a connection with messages, which
// polls the CQ itself: see WaitSends.
func (c *Conn) SendCQ() *verbs.CQ {
	if c.messages != nil {
		return nil
	}
	return c.sendCQ
}

// RecvCQ returns the CQ for receives. It is nil for a connection with messages, which
// polls the CQ itself: see WaitRecvs.
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

// Peer returns the parameters that came with the peer's request or answer, including its private
// data. Zeros pad the private data to the length of the message's field: in the TCP port space, 56
// bytes in a request, 196 in an answer.
func (c *Conn) Peer() ConnParam { return c.peer }

// MaxMessage returns the maximum length of a message in bytes. The peer's
// buffers may be smaller.
func (c *Conn) MaxMessage() int { return c.slotSize }

// Done returns a channel that is closed when the connection ends: by the peer,
// by the device's removal, by a change of addresses, by an error or by Close.
func (c *Conn) Done() <-chan struct{} {
	if m := c.messages; m != nil && c.life.Err() == nil {
		m.guarded.Do(m.recvs.guard)
	}
	return c.life.Done()
}

// Err returns nil while the connection lasts. Then it returns why it ended:
// ErrDisconnected, ErrDeviceRemoved, ErrUnreachable or ErrClosed, or the error that
// broke it, a *verbs.WCError or ErrNotMessage.
func (c *Conn) Err() error {
	m := c.messages
	if m != nil && c.life.Err() == nil {
		m.recvs.pollNow()
		m.sends.pollNow()
	}
	err := context.Cause(c.life)
	if err != nil && m != nil {
		return m.why(err)
	}
	return err
}

// Drain ends the connection and waits until all requests but the caller's receives have
// completed. The memory of these requests is then free again. Drain notifies the peer,
// without waiting for an answer. Messages that have not arrived are lost: call Flush first to
// wait for them. Afterwards WaitSends and WaitRecvs return the completions of the caller's
// own requests. Over iWARP, a request that was posted when the connection had ended never
// completes. Drain may be called more than once, and is followed by Close.
func (c *Conn) Drain(ctx context.Context) error {
	const op = "drain"
	if err := c.begin(ctx, op); err != nil {
		return err
	}
	defer c.use.RUnlock()
	c.messages.drains()
	c.endLife(ErrClosed)
	c.notifyPeer()
	c.notifying.Wait()
	if err := c.drain(ctx); err != nil {
		return opErr(op, "", err)
	}
	return nil
}

// drain waits for the requests of the queue pair.
func (c *Conn) drain(ctx context.Context) error {
	if c.iwarp {
		// The kernel flushes both queues before it reports the end, and accepts no requests
		// afterwards.
		if err := c.id.inbox.waitOver(ctx); err != nil {
			return err
		}
		c.messages.sends.pollNow()
		c.messages.recvs.pollNow()
		return nil
	}
	// If the queue pair is in ERR already, the move makes it flush receives posted since.
	if err := c.id.qpToError(); err != nil {
		return err
	}
	return c.messages.drain(ctx)
}

// Close ends the connection. It notifies the peer, without waiting for an answer. Messages
// that have not arrived are lost: call Flush first to wait for them. Pending calls return
// ErrClosed. Then Close closes all objects of the connection, in order: the queue pair, so
// that nothing is in flight any more, the objects given to Own, and all objects on the
// connection's own PD, if it has one. If the caller has not released a buffer, its memory
// stays. Then, or if an object can't be closed, Close returns ErrBusy and may be called
// again. Closing a closed Conn, or a nil one, does nothing.
func (c *Conn) Close() error {
	if c == nil {
		return nil
	}
	c.endLife(ErrClosed) // first, so that a refused call finds the reason in Err
	c.closing.Store(true)
	c.notifyMu.Lock()
	first := !c.peerNotified
	c.peerNotified = true
	c.notifyMu.Unlock()
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
	c.notifyMu.Lock()
	c.peerNotified = true
	c.notifyMu.Unlock()
	c.notifying.Wait()
	for len(c.opened) > 0 {
		last := len(c.opened) - 1
		if err := c.opened[last].Close(); err != nil {
			return err
		}
		c.opened = c.opened[:last]
	}
	return c.id.Close()
}
