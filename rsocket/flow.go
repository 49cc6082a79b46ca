package rsocket

import "github.com/goverbs/goverbs/internal/netconn"

// An inbound counts what the peer may send and what it has sent. The peer writes into a ring.
//
// Each message takes a receive, so the peer has credits. The receives have no memory of their
// own and are posted again as soon as their completion was polled. So a message is credited
// when it arrives, and not when it was read.
type inbound struct {
	netconn.Ring
	window   uint16 // the number of receives for data
	received uint16 // messages that took a credit
	granted  uint16 // the value of received up to which the peer may send

	ended   bool // the peer sends no more
	dropped bool // CloseRead: what arrives is dropped
}

// init starts with the first half published.
func (in *inbound) init(half int, window uint16) {
	*in = inbound{Ring: netconn.MakeRing(half), window: window, granted: window}
}

// data checks and counts a message with data. The peer has announced n bytes, and the device
// has reported length bytes written.
func (in *inbound) data(n, length uint32) error {
	switch {
	case in.ended:
		return violation("data after the end")
	case n != length:
		return violation("%d bytes announced, %d written", n, length)
	case n == 0:
		return violation("a message without data")
	case int64(n) > int64(in.Target()):
		return violation("%d bytes written, %d published", n, in.Target())
	}
	if err := in.credited(); err != nil {
		return err
	}
	in.Written(int(n))
	return nil
}

// credited counts a message that takes a credit.
func (in *inbound) credited() error {
	if in.received == in.granted {
		return violation("a message without a credit")
	}
	in.received++
	return nil
}

// due reports whether it is time to publish free space to the peer, or to give it credits.
func (in *inbound) due() bool {
	return in.Publishable() || in.granted-in.received <= in.window/2
}

// grant gives credits to the peer, and publishes a half of the ring if one is free. It returns
// the value for the message, and where the published half is, or -1.
func (in *inbound) grant() (value uint32, at int) {
	in.granted = in.received + in.window
	at = -1
	if in.Publishable() {
		at = in.Publish()
	}
	return uint32(in.granted), at
}

// An outbound counts what this side may send to the peer, and what it has sent.
type outbound struct {
	window  uint16 // the number of the peer's receives
	sent    uint16 // messages that took a credit
	allowed uint16 // the value of sent up to which the peer lets messages be sent

	target sge // where to write next
	next   int // the list entry of the following target

	blocked  bool  // nothing may be sent before the peer's first message: see iwarp
	deferred uint8 // a bit for each control message that waits for the end of blocked

	shut    bool // CloseWrite: nothing more is written
	refused bool // the peer receives no more
	ended   bool // ctlDisconnect has arrived at the peer
}

func (out *outbound) init(d *connData) {
	*out = outbound{window: d.credits, allowed: d.credits, target: d.ring, next: 1}
}

// credit reads a message that gives credits. Only the lower 16 bits of its value count.
func (out *outbound) credit(value uint32) error {
	before, now := out.allowed-out.sent, uint16(value)-out.sent
	if now > out.window || now < before {
		return violation("credits for %d messages: there were %d, and it has %d receives", now, before, out.window)
	}
	out.allowed = uint16(value)
	return nil
}

// room returns how many bytes a message may carry. It returns 0 until a target is taken from
// the list.
func (out *outbound) room() int {
	if out.sent == out.allowed {
		return 0
	}
	return int(min(out.target.length, valueMask))
}

// write counts a message with n bytes of data, and returns where to write them.
func (out *outbound) write(n int) (addr uint64, key uint32) {
	addr, key = out.target.addr, out.target.key
	out.sent++
	out.target.addr += uint64(n)
	out.target.length -= uint32(n)
	return addr, key
}
