package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// buffer returns a queue's memory from the list of pages at the end of an inbox: size
// bytes, from offset (in units of 1/64 of a page) in the first page. The low bits of a
// page's address are flags.
func buffer(pas []byte, size uint64, logPage uint, offset uint64) (bus.Buffer, Status) {
	shift := logPage + logMinPage
	if shift > 40 {
		return bus.Buffer{}, BadParam
	}
	start := offset << shift / 64
	n := (start + size + 1<<shift - 1) >> shift
	if n > uint64(len(pas)/8) {
		return bus.Buffer{}, BadInLen
	}
	b := bus.Buffer{Shift: shift, Offset: start, Pages: make([]uint64, n)}
	for i := range b.Pages {
		b.Pages[i] = binary.BigEndian.Uint64(pas[8*i:]) &^ (1<<logMinPage - 1)
	}
	return b, OK
}
