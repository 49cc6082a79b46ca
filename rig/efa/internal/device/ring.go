package device

import (
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// A ring is a queue in the machine's memory whose entries have a phase bit. The phase of the
// first round is 1, and changes with each round.
type ring struct {
	base  uint64
	size  uint32 // entries, a power of 2
	count uint32 // entries written, or read, so far
}

// set gives the ring its memory and starts it from the beginning.
func (r *ring) set(base uint64, size uint32) { *r = ring{base: base, size: size} }

// valid reports whether the ring's size is possible.
func (r *ring) valid() bool { return r.size > 0 && r.size&(r.size-1) == 0 }

func (r *ring) phase() uint32 {
	if r.count/r.size&1 == 0 {
		return 1
	}
	return 0
}

// entry returns the memory of the ring's next entry, nil if there is none.
func (r *ring) entry(m bus.Memory, bytes int) []byte {
	if !r.valid() {
		return nil
	}
	return m.Bytes(r.base+uint64(r.count&(r.size-1))*uint64(bytes), bytes)
}

// put writes the ring's next entry. Its first word passes it to the reader: it is written
// last, with the phase at the bit.
func (r *ring) put(m bus.Memory, entry []byte, bit uint) bool {
	to := r.entry(m, len(entry))
	if to == nil {
		return false
	}
	copy(to[4:], entry[4:])
	first := uint32(entry[0]) | uint32(entry[1])<<8 | uint32(entry[2])<<16 | uint32(entry[3])<<24
	bus.StoreLE32(to, first&^(1<<bit)|r.phase()<<bit)
	r.count++
	return true
}
