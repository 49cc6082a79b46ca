// Package bus is what a device sees of the machine it is plugged into: memory
// that the machine's processors use at the same time.
//
// Nothing here locks. Memory that is shared with processors is read and
// written like a device does it: word by word, the word that hands over an
// entry last and atomically (see Load32 and its fellows).
package bus

// Memory is the machine's memory as a device on its bus addresses it.
type Memory interface {
	// Bytes returns the memory [addr, addr+n). It returns nil if any of it
	// is not RAM, or if it is not in one piece. A slice stays good until the
	// machine takes that memory off the bus.
	Bytes(addr uint64, n int) []byte
}

// Buffer is a queue's memory: pages of 1<<Shift bytes each, the queue
// beginning at Offset in the first of them.
type Buffer struct {
	Shift  uint
	Offset uint64
	Pages  []uint64 // bus addresses
}

// Bytes returns n bytes of the queue from offset off. It returns nil where
// that is outside of the buffer, crosses the end of a page (entries of queues
// never do) or is not RAM.
func (b *Buffer) Bytes(m Memory, off uint64, n int) []byte {
	if b.Shift > 63 || n < 0 || off+b.Offset < off {
		return nil
	}
	off += b.Offset
	page, in := off>>b.Shift, off&(1<<b.Shift-1)
	if page >= uint64(len(b.Pages)) || uint64(n) > 1<<b.Shift-in {
		return nil
	}
	return m.Bytes(b.Pages[page]+in, n)
}

// RAM is a Memory of one piece, for tests of what sits on the bus.
type RAM struct {
	Base uint64
	Data []byte
}

// Bytes implements Memory.
func (r *RAM) Bytes(addr uint64, n int) []byte {
	off := addr - r.Base
	if n < 0 || addr < r.Base || off > uint64(len(r.Data)) || uint64(n) > uint64(len(r.Data))-off {
		return nil
	}
	return r.Data[off : off+uint64(n) : off+uint64(n)]
}
