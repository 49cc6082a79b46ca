package firmware

import (
	"math/bits"
	"slices"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// The first 8 bytes that are written to a UAR from uarSend on are a send queue's doorbell.
// A longer write is a copy of the WQE (BlueFlame), which is executed instead of the WQE in
// memory.
//
// A processor combines the stores of a copy, and delivers them as one. The bus here
// delivers each store separately, so this file reassembles them. A doorbell can't be told
// from the beginning of a copy. If the queue's driver makes copies, both wait a short time
// for more. Real processors too may deliver the combined bytes at any time. In that case,
// the HCA uses them as a doorbell, and reads the WQE from memory.

// Combining says how the stores of a copy are delivered.
type Combining uint8

const (
	Combined Combining = iota
	// Separate stores, except for copies of NOPs, with which drivers detect
	// whether stores are combined.
	Separate
	// Uncombined stores, also of NOPs, so that drivers detect that.
	Uncombined
)

const (
	opcodeNOP = 0x00
	// Each register has two buffers, which are used alternately.
	bufferSize = 1 << logRegister / 2
	// copyTime limits the time between a copy's first and last piece, nopTime that
	// of a NOP's copy, from which the driver draws conclusions.
	copyTime = 200 * time.Microsecond
	nopTime  = 10 * time.Millisecond
)

// Doorbells counts the writes to send doorbells.
type Doorbells struct {
	Plain    int    // doorbells, or beginnings of incomplete copies
	Copies   int    // complete copies
	Stray    int    // pieces of incomplete copies
	Executed uint64 // WQEs executed from copies
}

// copies has the incomplete copies, in the order in which they began.
type copies struct {
	open  []*partial
	plain map[uint32]bool // queues whose drivers make no copies
	count Doorbells
}

// partial is an incomplete copy.
type partial struct {
	uar, offset uint32 // of the buffer
	data        [bufferSize]byte
	have        uint32 // bit n: the n-th 8 bytes have arrived
	want        int    // the copy's length in units of 64 bytes
	until       time.Duration
}

func (p *partial) whole() bool { return bits.OnesCount32(p.have) >= p.want*8 }

// put adds a piece.
func (p *partial) put(at uint32, data []byte) {
	const unit = 8
	for i := at; i+unit <= at+uint32(len(data)) && i+unit <= bufferSize; i += unit {
		p.have |= 1 << (i / unit)
	}
	copy(p.data[at:], data)
}

// ring handles a write to the send doorbells of a UAR.
func (h *HCA) ring(uar, offset uint32, data []byte) {
	at, buffer := offset%bufferSize, offset&^(bufferSize-1)
	if at != 0 || len(data) < 8 {
		h.piece(uar, buffer, at, data)
		return
	}
	qpn := transport.DoorbellQP(data)
	// Earlier copies of this queue will not be completed any more.
	for _, p := range slices.Clone(h.copying.open) {
		if p.uar == uar && p.offset == buffer || transport.DoorbellQP(p.data[:]) == qpn {
			h.endCopy(p)
		}
	}
	ds := int(data[7] & 0x3f)
	want := (ds + 3) / 4
	nop := data[3] == opcodeNOP
	switch {
	case h.c.Profile.Combining == Uncombined, h.c.Profile.Combining == Separate && !nop, h.copying.plain[qpn] && !nop,
		ds < 2 && !nop, want == 0, want*64 > bufferSize:
		h.copying.count.Plain++
		h.bell(uar, offset, data)
		return
	}
	p := &partial{uar: uar, offset: buffer, want: want, until: h.c.Now() + copyTime}
	if nop {
		p.until += nopTime
	}
	p.put(0, data)
	h.copying.open = append(h.copying.open, p)
	if p.whole() {
		h.endCopy(p)
	}
}

// piece handles a write that isn't the beginning of a copy.
func (h *HCA) piece(uar, buffer, at uint32, data []byte) {
	for _, p := range h.copying.open {
		if p.uar == uar && p.offset == buffer {
			p.put(at, data)
			p.until = max(p.until, h.c.Now()+copyTime)
			if p.whole() {
				h.endCopy(p)
			}
			return
		}
	}
	h.copying.count.Stray++
	if h.c.Profile.Combining == Combined {
		// The piece's queue is unknown, so any queue may make copies.
		clear(h.copying.plain)
	}
}

// endCopy executes what has arrived of a copy.
func (h *HCA) endCopy(p *partial) {
	c := &h.copying
	c.open = slices.DeleteFunc(c.open, func(o *partial) bool { return o == p })
	if p.whole() {
		c.count.Copies++
		h.bell(p.uar, p.offset, p.data[:p.want*64])
		return
	}
	c.count.Plain++
	if p.have == 1 { // only its first 8 bytes
		if c.plain == nil {
			c.plain = map[uint32]bool{}
		}
		c.plain[transport.DoorbellQP(p.data[:])] = true
	}
	h.bell(p.uar, p.offset, p.data[:8])
}

// bell rings a send queue.
func (h *HCA) bell(uar, offset uint32, data []byte) {
	h.engine.Doorbell(uar, offset, data)
	// Send, so that a few short messages are sent before a later command.
	h.engine.Run(h.c.Now(), burst)
}

// endCopies executes all that has arrived, before the driver's next action.
func (h *HCA) endCopies() {
	for len(h.copying.open) > 0 {
		h.endCopy(h.copying.open[0])
	}
}

// expireCopies ends copies that take too long, and returns the time until the next one
// expires.
func (h *HCA) expireCopies(now time.Duration) (wait time.Duration) {
	wait = time.Hour
	for _, p := range slices.Clone(h.copying.open) {
		if p.until <= now {
			h.endCopy(p)
		} else {
			wait = min(wait, p.until-now)
		}
	}
	return wait
}

// Doorbells returns the counts of send doorbells since the HCA was created.
func (h *HCA) Doorbells() Doorbells {
	n := h.copying.count
	n.Executed = h.engine.Copies()
	return n
}
