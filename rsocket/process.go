package rsocket

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/netconn"
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
// link.Waits.Mu.
func (c *Conn) process() {
	if c.link.Phase == netconn.Released {
		return
	}
	progress := c.poll()
	c.postDeferred()
	c.grant()
	if c.mustWait() {
		// Perhaps no other call follows, so the next event gives the credits.
		c.link.Due.Store(true)
		if c.link.Arm() {
			progress = c.poll() || progress
			c.postDeferred()
			c.grant()
		}
	} else if c.link.Due.Load() {
		c.link.Due.Store(false)
	}
	c.takeTarget()
	if !progress {
		return
	}
	if ok, err := c.hasData(); ok || err != nil {
		c.link.Rd.Signal()
	}
	if ok, err := c.sender.HasSlot(); ok || err != nil {
		c.link.Wr.Signal()
	}
	if c.lentReturned() {
		c.link.Lent.Signal()
	}
	if c.flushed() {
		c.link.End.Signal()
	}
}

// poll handles the completions of the CQ, and reports whether anything has changed.
func (c *Conn) poll() bool {
	progress := c.link.Poll((2*c.o.SendQueue+c.o.RecvQueue)/netconn.Batch + 2) // over iWARP a message has two completions
	if c.in.dropped {
		c.in.Discard()
	}
	return progress
}

// completed counts a completion, and reports whether it is a receive's.
func (c *Conn) completed(wc *verbs.WC) (recv bool) {
	kind := wc.WRID & wridKind
	if kind == wridData && wc.WRID&wridLent != 0 {
		c.lentWRs--
		c.lentFailed = c.lentFailed || wc.Status != verbs.WCSuccess
	}
	switch {
	case wc.Status != verbs.WCSuccess:
		c.link.Fail(netconn.Lost(wc.Err()))
	case kind == wridRecv:
		if err := c.received(wc); err != nil {
			c.link.Fail(err)
		}
	case kind == wridData:
		c.sender.Completed(wc.WRID)
	case kind == wridCredits:
		c.creditWRs--
	case wc.WRID == wridControl|ctlKeepalive:
		c.link.Probing = false
	case wc.WRID == wridControl|ctlDisconnect:
		c.out.ended = true
	}
	return kind == wridRecv
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
		m := parseMapping(c.link.Exposed.Bytes()[c.o.RecvBuffer+targetsLen+int(value)*mappingLen:], binary.NativeEndian)
		if !m.memory.fits() {
			return violation("a mapping of %d bytes at %#x", m.memory.length, m.memory.addr)
		}
		c.theirs[value] = m
		return c.in.credited()
	case msgControl:
		switch value {
		case ctlDisconnect:
			c.in.ended, c.out.refused = true, true
			if c.link.Phase != netconn.Open {
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
	return c.in.due() && c.link.Err == nil && !c.out.refused && c.link.Phase == netconn.Open
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
			half := sge{addr: c.link.Exposed.Addr() + uint64(at), key: c.link.Exposed.RKey(), length: uint32(c.in.Half)}
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
	if c.out.blocked || c.out.deferred == 0 || c.out.refused || c.link.Err != nil {
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

// flushed reports whether no written data is on its way any more.
func (c *Conn) flushed() bool { return c.out.ended || c.link.Err != nil }
