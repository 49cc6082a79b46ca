package valkeyrdma

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/verbs"
)

// The WRIDs of a connection's requests. The lower bits of a request with data are netconn.Sender's, and those of a
// receive its place.
const (
	wridKind    = 7 << 61
	wridData    = 0 << 61
	wridCommand = 1 << 61
	wridProbe   = 2 << 61
	wridLast    = 3 << 61
	wridRecv    = 4 << 61
)

// process polls the CQ, registers memory with the peer, and wakes the calls whose wait is over. The caller holds
// link.Waits.Mu.
func (c *Conn) process() {
	if c.link.Phase == netconn.Released {
		return
	}
	progress := c.poll()
	c.command()
	if c.mustCommand() {
		// Perhaps no other call follows. So the next event posts the commands.
		c.link.Due.Store(true)
		if c.link.Arm() {
			progress = c.poll() || progress
			c.command()
		}
	} else if c.link.Due.Load() {
		c.link.Due.Store(false)
	}
	if !progress {
		return
	}
	if ok, err := c.hasData(); ok || err != nil {
		c.link.Rd.Signal()
	}
	if ok, err := c.sender.HasSlot(); ok || err != nil {
		c.link.Wr.Signal()
	}
	if c.flushed() {
		c.link.End.Signal()
	}
}

// poll handles the completions of the CQ, and reports whether anything has changed.
func (c *Conn) poll() bool { return c.link.Poll((sendQueue+receives)/netconn.Batch + 2) }

// completed counts a completion, and reports whether it is a receive's.
func (c *Conn) completed(wc *verbs.WC) (recv bool) {
	kind := wc.WRID & wridKind
	if wc.Status != verbs.WCSuccess {
		c.link.Fail(netconn.Lost(wc.Err()))
		return kind == wridRecv
	}
	switch kind {
	case wridRecv:
		if err := c.received(wc); err != nil {
			c.link.Fail(err)
		}
	case wridData:
		c.sender.Completed(wc.WRID)
	case wridCommand:
		c.commands--
	case wridProbe:
		c.link.Probing = false
	case wridLast:
		c.arrived = true
	}
	return kind == wridRecv
}

// received checks and counts a message of the peer.
func (c *Conn) received(wc *verbs.WC) error {
	if imm, ok := wc.Imm(); ok {
		return c.data(imm, wc.ByteLen)
	}
	if wc.Opcode != verbs.WCRecv || wc.ByteLen != commandLen {
		return violation("a message of %d bytes, want %d", wc.ByteLen, commandLen)
	}
	at := c.o.SendBuffer + int(wc.WRID&^wridKind)*commandLen
	b := c.link.Memory.Bytes()[at : at+commandLen]
	switch op := binary.BigEndian.Uint16(b); op {
	case opGetServerFeature:
		if c.window == 0 {
			c.answers++
		} else if c.flow.asking {
			c.flow.asking = false
			c.flow.confirm(c.flow.asked)
		}
	case opSetClientFeature:
		if features := binary.BigEndian.Uint64(b[atFeatures:]); features != 0 {
			return violation("features %#x, of which there are none", features)
		}
	case opKeepalive:
	case opRegisterXferMemory:
		m, err := parseMemory(b)
		if err != nil {
			return err
		}
		c.target = m
		c.flow.confirm(c.flow.filled)
	default:
		return violation("command %d", op)
	}
	return nil
}

// data checks and counts bytes that the peer has written: it has announced n, and the device has reported length.
func (c *Conn) data(n, length uint32) error {
	switch {
	case n != length:
		return violation("%d bytes announced, %d written", n, length)
	case n == 0:
		return violation("a message without data")
	case int64(n) > int64(c.in.Target()):
		return violation("%d bytes written, %d registered", n, c.in.Target())
	}
	c.in.Written(int(n))
	c.flow.confirm(c.flow.published) // The peer knows the memory.
	return nil
}

// mustPublish reports whether the peer waits for memory, and there is some.
func (c *Conn) mustPublish() bool { return c.in.Full() && c.in.Publishable() }

// mustAsk reports whether it is time to ask the peer how many messages it has received.
func (c *Conn) mustAsk() bool {
	return c.window > 0 && !c.flow.asking && c.flow.sent-c.flow.confirmed >= c.window
}

// mustCommand reports whether there are commands to post.
func (c *Conn) mustCommand() bool {
	return c.link.Err == nil && c.link.Phase == netconn.Open && (c.mustPublish() || c.answers > 0 || c.mustAsk())
}

// command posts the commands that are due, as far as there are slots.
func (c *Conn) command() {
	for c.mustCommand() && c.commands < commands {
		switch {
		case c.mustPublish():
			c.register(c.in.Publish())
		case c.answers > 0:
			c.answers--
			c.feature()
		default:
			c.feature()
			c.flow.asking, c.flow.asked = true, c.flow.sent
		}
	}
}

// register registers half of the ring with the peer.
func (c *Conn) register(at int) {
	memory{addr: c.link.Exposed.Addr() + uint64(at), key: c.link.Exposed.RKey(), length: uint32(c.in.Half)}.register(&c.small)
	c.postCommand()
	c.flow.published = c.flow.sent
}

// feature posts the question for features, or the answer, which says that there are none.
func (c *Conn) feature() {
	clear(c.small[:])
	binary.BigEndian.PutUint16(c.small[:], opGetServerFeature)
	c.postCommand()
}

// postCommand posts the command in small.
func (c *Conn) postCommand() {
	c.commands++
	c.flow.sent++
	c.link.Post(&verbs.SendWR{WRID: wridCommand, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: c.small[:]})
}

// postData posts a message with n bytes of data.
func (c *Conn) postData(wr *verbs.SendWR, n int) error {
	wr.Opcode, wr.Imm, wr.Remote = verbs.OpRDMAWriteImm, uint32(n), c.target.take(n)
	c.flow.sent++
	if c.target.length == 0 {
		c.flow.filled = c.flow.sent
	}
	c.sender.Take(wr)
	return c.link.Post(wr)
}

// flushed reports whether no written data is on its way any more.
func (c *Conn) flushed() bool { return c.arrived || c.link.Err != nil }
