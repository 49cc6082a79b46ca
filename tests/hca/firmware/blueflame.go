package firmware

import "time"

// What is written to a UAR from uarSend on rings a send queue by its first 8
// bytes; more of them are a copy of the WQE (BlueFlame). The bus delivers such a
// copy in pieces, and the WQE is in memory as well, so nothing waits for the
// rest, but for a NOP: by NOPs whose copy is not quite what is in memory drivers
// find out whether writes to the UAR are combined.

// blueFlame is the copy of a NOP of which pieces have arrived.
type blueFlame struct {
	uar, offset uint32
	data        []byte
	since       time.Duration
}

const (
	opcodeNOP = 0x00
	// copySize is what drivers copy at least.
	copySize = 64
	// copyTime is how long the pieces of a copy may take.
	copyTime = time.Millisecond
)

// ring takes a write to the part of a UAR that rings send queues.
func (h *HCA) ring(uar, offset uint32, data []byte) {
	const registers = 0x100 // each begins so many bytes after the one before
	b := &h.copying
	if len(b.data) > 0 && uar == b.uar && offset == b.offset+uint32(len(b.data)) {
		b.data = append(b.data, data...)
		if len(b.data) >= copySize {
			h.endCopy()
		}
		return
	}
	h.endCopy()
	if offset%registers == 0 && len(data) == 8 && data[3] == opcodeNOP {
		b.uar, b.offset, b.since = uar, offset, h.c.Now()
		b.data = append(b.data, data...)
		return
	}
	h.engine.Doorbell(uar, offset, data)
	// A command that comes after a few short messages finds them sent.
	h.engine.Run(h.c.Now(), burst)
}

// endCopy rings with what has arrived.
func (h *HCA) endCopy() {
	b := &h.copying
	if len(b.data) > 0 {
		h.engine.Doorbell(b.uar, b.offset, b.data)
		b.data = b.data[:0]
		h.engine.Run(h.c.Now(), burst)
	}
}
