// Package bus gives a device access to the memory of its machine, which the machine's
// processors use at the same time.
//
// It has no locks. Memory that is shared with processors is accessed as devices do: word
// by word. The word that passes the ownership of an entry is written last and atomically
// (see Load32 and the like).
package bus

// Memory is the machine's memory as a device on its bus addresses it.
type Memory interface {
	// Bytes returns the memory [addr, addr+n). It returns nil if any of it
	// isn't RAM, or if it isn't contiguous. The slice stays valid until the
	// machine removes that memory from the bus.
	Bytes(addr uint64, n int) []byte
}

// Buffer is a queue's memory: pages of 1<<Shift bytes each. The queue begins at Offset in
// the first page.
type Buffer struct {
	Shift  uint
	Offset uint64
	Pages  []uint64 // bus addresses
}

// Bytes returns n bytes of the queue from offset off. It returns nil if they are outside
// of the buffer, cross the end of a page (queue entries never do) or aren't RAM.
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

// RAM is a contiguous Memory, for tests of devices.
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
