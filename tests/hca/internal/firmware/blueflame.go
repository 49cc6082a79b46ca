package firmware

import (
	"math/bits"
	"slices"
	"time"

	"github.com/goverbs/goverbs/tests/hca/internal/transport"
)

// What is written to a UAR from uarSend on rings a send queue by its first 8
// bytes; more of them are a copy of the WQE (BlueFlame), which is executed in the
// place of what is in memory.
//
// A processor combines the stores that a copy is made of, and delivers them as one.
// The bus here delivers each store by itself, so that they are put together
// again. Nothing tells a doorbell from the beginning of a copy: of a queue whose
// driver copies, both wait for what follows, but not for long. That too is as
// with processors, who may at any time deliver what they have so far: then the
// HCA rings by that, and takes the WQE from memory.

// Combining is what becomes of the stores that a copy is made of.
type Combining uint8

const (
	Combined Combining = iota
	// Separate stores of all copies but those of NOPs, by which drivers find out
	// whether stores are combined.
	Separate
	// Uncombined stores, so that drivers find that out.
	Uncombined
)

const (
	opcodeNOP = 0x00
	// Each register is two buffers, which are used in turn.
	bufferSize = 1 << logRegister / 2
	// copyTime is how long the pieces of a copy may take, and nopTime that of a NOP,
	// whose driver draws conclusions.
	copyTime = 200 * time.Microsecond
	nopTime  = 10 * time.Millisecond
)

// Doorbells counts what was written to ring send queues.
type Doorbells struct {
	Plain    int    // doorbells, or beginnings of copies that came in pieces
	Copies   int    // copies that came whole
	Stray    int    // pieces of others
	Executed uint64 // WQEs executed from copies
}

// copies are those of which pieces have arrived, in the order in which they began.
type copies struct {
	open  []*partial
	plain map[uint32]bool // queues whose drivers do not copy
	count Doorbells
}

// partial is such a copy.
type partial struct {
	uar, offset uint32 // of the buffer
	data        [bufferSize]byte
	have        uint32 // bit n: the n-th 8 bytes have arrived
	want        int    // how many of 64 bytes are copied
	until       time.Duration
}

func (p *partial) whole() bool { return bits.OnesCount32(p.have) >= p.want*8 }

// put takes a piece.
func (p *partial) put(at uint32, data []byte) {
	const unit = 8
	for i := at; i+unit <= at+uint32(len(data)) && i+unit <= bufferSize; i += unit {
		p.have |= 1 << (i / unit)
	}
	copy(p.data[at:], data)
}

// ring takes a write to the part of a UAR that rings send queues.
func (h *HCA) ring(uar, offset uint32, data []byte) {
	at, buffer := offset%bufferSize, offset&^(bufferSize-1)
	if at != 0 || len(data) < 8 {
		h.piece(uar, buffer, at, data)
		return
	}
	qpn := transport.DoorbellQP(data)
	// What this queue copies before is not going to be whole any more.
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

// piece takes what is no beginning.
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
		// Whose it is is not known. None of those that seem not to copy is worth
		// a mistake.
		clear(h.copying.plain)
	}
}

// endCopy rings with what has arrived.
func (h *HCA) endCopy(p *partial) {
	c := &h.copying
	c.open = slices.DeleteFunc(c.open, func(o *partial) bool { return o == p })
	if p.whole() {
		c.count.Copies++
		h.bell(p.uar, p.offset, p.data[:p.want*64])
		return
	}
	c.count.Plain++
	if p.have == 1 { // its first 8 bytes and no more
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
	// A command that comes after a few short messages finds them sent.
	h.engine.Run(h.c.Now(), burst)
}

// endCopies rings with all that has arrived: what comes next was done after that.
func (h *HCA) endCopies() {
	for len(h.copying.open) > 0 {
		h.endCopy(h.copying.open[0])
	}
}

// expireCopies ends those that take too long, and returns for how long there will
// be no other.
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

// Doorbells counts what was written to ring send queues since the HCA was made.
func (h *HCA) Doorbells() Doorbells {
	n := h.copying.count
	n.Executed = h.engine.Copies()
	return n
}
