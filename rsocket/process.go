package rsocket

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/verbs"
)

type byteOrder = binary.ByteOrder

// The WRIDs of a connection's requests. Below the kind, a request with data has the numbers of
// requests and of bytes in the send buffer that its completion frees.
const (
	wridKind    = 3 << 62
	wridData    = 0 << 62
	wridCredits = 1 << 62
	wridControl = 2 << 62
	wridRecv    = 3 << 62

	wridLent = 1 << 61 // with data from a caller's memory
)

// process polls the CQ, gives credits to the peer, and wakes the calls whose wait is over. The caller holds
// mu.
func (c *Conn) process() {
	if c.phase == connReleased {
		return
	}
	progress := c.poll()
	c.postDeferred()
	c.grant()
	if c.mustWait() {
		// Perhaps no other call follows. So the next event gives the credits.
		c.creditsDue.Store(true)
		if c.arm() {
			progress = c.poll() || progress
			c.postDeferred()
			c.grant()
		}
	} else if c.creditsDue.Load() {
		c.creditsDue.Store(false)
	}
	c.takeTarget()
	if !progress {
		return
	}
	if ok, err := c.hasData(); ok || err != nil {
		c.rd.signal()
	}
	if ok, err := c.hasSlot(); ok || err != nil {
		c.wr.signal()
	}
	if c.lentReturned() {
		c.lent.signal()
	}
	if c.flushed() {
		c.end.signal()
	}
}

// poll handles the completions of the CQ, and reports whether anything has changed.
func (c *Conn) poll() (progress bool) {
	// Bounded, in case a peer sends faster than this loop polls. Over iWARP a message has two completions.
	for range (2*c.o.SendQueue+c.o.RecvQueue)/len(c.wcs) + 2 {
		n, err := c.cq.Poll(c.wcs[:])
		if err != nil {
			c.cqFailed, progress = true, true
			c.fail(lost(err))
			break
		}
		if n == 0 {
			break
		}
		progress = true
		recvs := 0
		for i := range c.wcs[:n] {
			wc := &c.wcs[i]
			c.completed(wc)
			if wc.WRID&wridKind == wridRecv {
				if c.iwarp != nil {
					c.iwarp.receive(&c.recvs[recvs], recvs, wc.WRID&^wridKind)
				}
				recvs++
			}
		}
		if recvs > 0 && c.err == nil {
			if _, err := c.qp.PostRecv(c.recvs[:recvs]...); err != nil {
				c.fail(lost(err))
			}
		}
		if n < len(c.wcs) {
			break
		}
	}
	c.discard()
	return progress
}

// discard drops bytes that arrive after CloseRead. While a Read copies, it drops none, so that no memory is
// published while it is read.
func (c *Conn) discard() {
	for c.in.dropped && !c.copying && c.in.unread > 0 {
		from, to := c.in.next()
		c.in.read(to - from)
	}
}

// arm makes the CQ report its next completion, and reports whether the CQ was not armed before. The caller
// must then poll for earlier completions.
func (c *Conn) arm() bool {
	if c.armed.Load() {
		return false
	}
	c.armed.Store(true) // before: the event may come at once
	if err := c.cq.Arm(false); err != nil {
		c.fail(lost(err))
	}
	return true
}

// completed counts a completion.
func (c *Conn) completed(wc *verbs.WC) {
	kind := wc.WRID & wridKind
	if kind == wridData && wc.WRID&wridLent != 0 {
		c.lentWRs--
	}
	switch {
	case wc.Status != verbs.WCSuccess:
		c.fail(lost(wc.Err()))
	case kind == wridRecv:
		if err := c.received(wc); err != nil {
			c.fail(err)
		}
	case kind == wridData:
		c.slots += int(wc.WRID >> 32 & 0xffff)
		c.space += int(uint32(wc.WRID))
	case kind == wridCredits:
		c.creditWRs--
	case wc.WRID == wridControl|ctlKeepalive:
		c.probing = false
	case wc.WRID == wridControl|ctlDisconnect:
		c.out.ended = true
	}
}

// message returns a message of the peer, and how many bytes were written with it. Over iWARP, only the peer
// knows how many.
func (c *Conn) message(wc *verbs.WC) (imm, written uint32, err error) {
	if c.iwarp != nil {
		imm, err = c.iwarp.message(wc, c.order)
		return imm, valueOf(imm), err
	}
	imm, ok := wc.Imm()
	if !ok || wc.Opcode != verbs.WCRecvRDMAWithImm {
		return 0, 0, violation("a message that is no write with immediate data")
	}
	return imm, wc.ByteLen, nil
}

// received checks and counts a message of the peer.
func (c *Conn) received(wc *verbs.WC) error {
	imm, written, err := c.message(wc)
	if err != nil {
		return err
	}
	c.out.blocked = false
	value := valueOf(imm)
	switch typ := typeOf(imm); typ {
	case msgData:
		return c.in.data(value, written)
	case msgCredits:
		return c.out.credit(value)
	case msgIOMap:
		if int64(value) >= int64(len(c.theirs)) {
			return violation("mapping %d of %d", value, len(c.theirs))
		}
		m := parseMapping(c.exposed.Bytes()[c.o.RecvBuffer+targetsLen+int(value)*mappingLen:], binary.NativeEndian)
		if !m.memory.fits() {
			return violation("a mapping of %d bytes at %#x", m.memory.length, m.memory.addr)
		}
		c.theirs[value] = m
		return c.in.credited()
	case msgControl:
		switch value {
		case ctlDisconnect:
			c.in.ended, c.out.refused = true, true
			if c.phase != connOpen {
				c.answer()
			}
		case ctlKeepalive:
		case ctlShutdown:
			c.in.ended = true
		default:
			return violation("control message %d", value)
		}
		return nil
	default:
		return violation("a message of type %d", typ)
	}
}

// due reports whether it is time to give credits to the peer, or to publish memory to it.
func (c *Conn) due() bool {
	return c.in.due() && c.err == nil && !c.out.refused && c.phase == connOpen
}

// mustWait reports whether the peer is due messages that may not be sent yet, or credits that have no slot in
// the send queue.
func (c *Conn) mustWait() bool {
	return c.out.blocked && c.out.deferred != 0 || (c.out.blocked || c.creditWRs == controls) && c.due()
}

// grant gives credits to the peer, and publishes memory to it, if it is time to.
func (c *Conn) grant() {
	for !c.out.blocked && c.creditWRs < controls && c.due() {
		value, at := c.in.grant()
		wr := verbs.SendWR{WRID: wridCredits, Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: message(msgCredits, value)}
		if at >= 0 {
			half := sge{addr: c.exposed.Addr() + uint64(at), key: c.exposed.RKey(), length: uint32(c.in.half)}
			half.put(c.small[:], c.order)
			wr.Inline = c.small[:]
			wr.Remote = verbs.Remote{Addr: c.peer.addr + uint64(c.entry)*sgeLen, RKey: c.peer.key}
			if c.entry++; c.entry == c.peer.length {
				c.entry = 0
			}
		}
		c.creditWRs++
		c.post(&wr)
	}
}

// postControl posts a control message, once this side may send. The send queue has slots for one message of each
// kind.
func (c *Conn) postControl(value uint32) {
	if c.out.blocked {
		c.out.deferred |= 1 << value
		return
	}
	wr := verbs.SendWR{WRID: wridControl | uint64(value), Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: message(msgControl, value)}
	c.post(&wr)
}

// postDeferred posts the control messages that had to wait.
func (c *Conn) postDeferred() {
	if c.out.blocked || c.out.deferred == 0 || c.out.refused || c.err != nil {
		return
	}
	deferred := c.out.deferred
	c.out.deferred = 0
	for _, value := range []uint32{ctlShutdown, ctlDisconnect} {
		if deferred&(1<<value) != 0 {
			c.postControl(value)
		}
	}
}

// fail ends the connection because of an error, which it returns, and disconnects.
func (c *Conn) fail(err error) error {
	if c.err != nil {
		return c.err
	}
	c.err = err
	close(c.ended)
	if c.id != nil { // the handshake is over
		_ = c.id.Disconnect() // the peer may be gone
	}
	c.wakeAll()
	return err
}

func (c *Conn) wakeAll() {
	c.rd.signal()
	c.wr.signal()
	c.end.signal()
	c.lent.signal()
}

// flushed reports whether no written data is on its way any more.
func (c *Conn) flushed() bool { return c.out.ended || c.err != nil }

// event handles an event of the CQ: a completion has arrived.
func (c *Conn) event() {
	c.armed.Store(false)
	if c.creditsDue.Load() {
		c.mu.Lock()
		c.process()
		c.mu.Unlock()
	}
	c.wakeAll()
}

// peerGone ends the connection because the connection manager has reported its end.
func (c *Conn) peerGone(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == connReleased {
		return
	}
	c.process() // what arrived before
	c.fail(err)
}
