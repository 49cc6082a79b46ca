package mkey

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

const (
	mttSize = 8
	klmSize = 16
	// The low bits of a page's address are its access rights, if any is set
	// (MLX5_EN_RD, MLX5_EN_WR). One is reserved.
	mttRead  = 1
	mttWrite = 2
	mttFlags = 7
	// pattern instead of a KLM's key marks a repeated list, whose first entry is
	// its header (struct mlx5_stride_block_ctrl_seg).
	pattern = 0x400
	// maxDepth is the maximum nesting of keys.
	maxDepth = 4
)

// Resolve appends the memory [addr, addr+n) of a key to dst, in order, for a QP of this PD
// that needs one of the rights. On a Fault, it returns dst unchanged. If n is 0, it doesn't
// check the key.
func (t *Table) Resolve(dst [][]byte, key, pd, qpn uint32, addr uint64, n int, want Access) ([][]byte, Fault) {
	if n == 0 {
		return dst, FaultNone
	}
	if n < 0 {
		return dst, FaultBounds
	}
	w := walk{t: t, dst: dst, want: want}
	f := FaultAccess
	switch {
	case key == DumpFillKey:
		f = w.nowhere(n)
	case key != ReservedLkey:
		var c *Context
		if c, f = t.open(key, pd, qpn, want); f == FaultNone {
			f = w.key(c, addr, uint64(n), maxDepth)
		}
	case want&(LocalRead|LocalWrite) == want:
		f = w.memory(addr, uint64(n))
	}
	if f != FaultNone {
		return dst, f
	}
	return w.dst, FaultNone
}

// walk is the state of one Resolve.
type walk struct {
	t    *Table
	dst  [][]byte
	want Access
}

func (w *walk) memory(addr, n uint64) Fault {
	b := w.t.mem.Bytes(addr, int(n))
	if b == nil {
		return FaultMemory
	}
	w.dst = append(w.dst, b)
	return FaultNone
}

// nowhere is the memory of DumpFillKey.
func (w *walk) nowhere(n int) Fault {
	var from []byte
	switch w.want {
	case LocalRead:
		from = w.t.zeros[:]
	case LocalWrite:
		from = w.t.sink[:]
	default:
		return FaultAccess
	}
	for ; n > 0; n -= len(from) {
		w.dst = append(w.dst, from[:min(n, len(from))])
	}
	return FaultNone
}

// covers reports whether [addr, addr+n) is in the key's range.
func (c *Context) covers(addr, n uint64) bool {
	return c.Length64 || addr >= c.Start && addr-c.Start <= c.Len && n <= c.Len-(addr-c.Start)
}

func (w *walk) key(c *Context, addr, n uint64, depth int) Fault {
	if c.Mode == Device {
		if addr > c.Len || n > c.Len-addr {
			return FaultBounds
		}
		w.dst = append(w.dst, w.t.Own.Bytes(c.Start+addr, int(n)))
		return FaultNone
	}
	if !c.covers(addr, n) {
		const slack = 64
		if !w.t.Mutant.Is(mutant.EndUnchecked) || n <= slack/2 || !c.covers(addr, n-slack/2) {
			return FaultBounds
		}
		n -= slack / 2
	}
	switch c.Mode {
	case PA:
		return w.memory(addr, n)
	case KLM:
		if len(c.XLT) >= klmSize && binary.BigEndian.Uint32(c.XLT[4:]) == pattern {
			return w.pattern(c, addr-c.Start, n, depth)
		}
		return w.list(c, addr-c.Start, n, depth)
	}
	return w.pages(c, addr, n, depth)
}

// pages walks a key of equal pieces. The first piece begins at Start, rounded down.
func (w *walk) pages(c *Context, addr, n uint64, depth int) Fault {
	size := uint64(1) << c.PageShift
	off := addr - c.Start + c.Start&(size-1)
	for n > 0 {
		page, in := off>>c.PageShift, off&(size-1)
		part := min(n, size-in)
		var f Fault
		if c.Mode == MTT {
			if page >= uint64(c.room()/mttSize) {
				return FaultMemory
			}
			var entry uint64
			if page < uint64(len(c.XLT)/mttSize) {
				entry = binary.BigEndian.Uint64(c.XLT[page*mttSize:])
			}
			use := uint64(mttRead)
			if w.want.below() == LocalWrite {
				use = mttWrite
			}
			at, flags := entry&^mttFlags, entry&(mttRead|mttWrite)
			if at == 0 || flags != 0 && flags&use == 0 {
				return FaultPage
			}
			f = w.memory(at+in, part)
		} else {
			if page >= uint64(len(c.XLT)/klmSize) {
				return FaultMemory
			}
			e := c.XLT[page*klmSize:]
			f = w.inner(c, binary.BigEndian.Uint32(e[4:]), binary.BigEndian.Uint64(e[8:])+in, part, depth)
		}
		if f != FaultNone {
			return f
		}
		off += part
		n -= part
	}
	return FaultNone
}

// list walks the pieces of other keys: byte count, key, address.
func (w *walk) list(c *Context, off, n uint64, depth int) Fault {
	for e := c.XLT; n > 0; e = e[klmSize:] {
		if len(e) < klmSize {
			return FaultMemory
		}
		size := uint64(binary.BigEndian.Uint32(e))
		if off >= size {
			off -= size
			continue
		}
		part := min(n, size-off)
		if f := w.inner(c, binary.BigEndian.Uint32(e[4:]), binary.BigEndian.Uint64(e[8:])+off, part, depth); f != FaultNone {
			return f
		}
		off = 0
		n -= part
	}
	return FaultNone
}

// pattern walks the entries of a pattern in rounds. In every round, each entry advances by
// its stride. The header has the bytes of a round, the operation, and the numbers of
// rounds and of entries. An entry has stride, byte count, key and address.
func (w *walk) pattern(c *Context, off, n uint64, depth int) Fault {
	be := binary.BigEndian
	entries, count := c.XLT[klmSize:], int(be.Uint16(c.XLT[14:]))
	if count*klmSize > len(entries) {
		return FaultMemory
	}
	entries = entries[:count*klmSize]
	var round uint64
	for e := entries; len(e) > 0; e = e[klmSize:] {
		round += uint64(be.Uint16(e[2:]))
	}
	if round == 0 || round != uint64(be.Uint32(c.XLT)) {
		return FaultMemory
	}
	nth, off := off/round, off%round
	for e := entries; n > 0; e = e[klmSize:] {
		if len(e) == 0 {
			e = entries
			nth++
		}
		if nth >= uint64(be.Uint32(c.XLT[8:])) {
			return FaultMemory
		}
		size := uint64(be.Uint16(e[2:]))
		if off >= size {
			off -= size
			continue
		}
		part := min(n, size-off)
		at := be.Uint64(e[8:]) + nth*uint64(be.Uint16(e)) + off
		if f := w.inner(c, be.Uint32(e[4:]), at, part, depth); f != FaultNone {
			return f
		}
		off = 0
		n -= part
	}
	return FaultNone
}

// inner continues in a key that c is based on.
func (w *walk) inner(c *Context, key uint32, addr, n uint64, depth int) Fault {
	if depth == 0 {
		return FaultMemory
	}
	if key == NullKey {
		return FaultPage
	}
	in, f := w.t.open(key, c.PD, AnyQP, w.want.below())
	if f != FaultNone {
		return f
	}
	return w.key(in, addr, n, depth-1)
}

// below returns the right that a key needs so that another can be based on it: a window
// grants remotely what its region grants locally.
func (a Access) below() Access {
	if a&(LocalWrite|RemoteWrite|Atomic) != 0 {
		return LocalWrite
	}
	return LocalRead
}
