package device

import (
	"encoding/binary"
)

// Permissions of a memory region.
const (
	localWrite = 1 << iota
	remoteWrite
	remoteRead
	allPermissions = 1<<iota - 1
)

// An mr is a memory region. The first page contains its first byte.
type mr struct {
	pd          uint32
	start       uint64 // virtual
	length      uint64
	permissions uint8
	shift       uint
	pages       []uint64
	domain      *pd
	key         uint32
}

// A key has the region's number in its lower bits, and differs from that of an earlier region
// with the same number.
const (
	keyBits = 24
	keyMask = 1<<keyBits - 1
)

func (d *Device) registerMR(c *command, a *answer) status {
	in := uint32(c.u16(4))
	p := d.pds.get(in)
	if p == nil {
		return illegalParameter
	}
	m := &mr{
		pd: in, domain: p, length: c.u64(40), shift: uint(c.u8(48) & 0x1f), permissions: c.u8(49), start: c.u64(56),
	}
	const physical = 1 << 7
	if m.length == 0 || m.start+m.length-1 < m.start || m.permissions&^allPermissions != 0 || c.u8(48)&physical != 0 ||
		pageSizes>>m.shift&1 == 0 ||
		m.permissions&remoteRead != 0 && !d.Profile.RDMARead || m.permissions&remoteWrite != 0 && !d.Profile.RDMAWrite {
		return illegalParameter
	}
	count := ((m.start+m.length-1)>>m.shift - m.start>>m.shift) + 1
	if count > maxPages {
		return illegalParameter
	}
	var s status
	if m.pages, s = d.pageList(c, int(count)); s != success {
		return s
	}
	for _, page := range m.pages {
		if page&(1<<m.shift-1) != 0 {
			return illegalParameter
		}
	}
	n, ok := d.mrs.add(m)
	if !ok {
		return noResources
	}
	p.users++
	d.keys++
	m.key = (d.keys*maxMR | n) & keyMask
	a.put32(0, m.key)
	a.put32(4, m.key)
	return success
}

// pageList reads the addresses of a region's pages: from the command, from one list, or from
// a chain of lists of lists.
func (d *Device) pageList(c *command, count int) ([]uint64, status) {
	if c.flags()&flagControl == 0 {
		if count > pageListInline {
			return nil, malformed
		}
		return words(c[8:], count), success
	}
	length, at := c.u32(8), c.address(12)
	if c.flags()&flagIndirect == 0 {
		b := d.Memory.Bytes(at, count*8)
		if int(length) < count*8 || b == nil {
			return nil, malformed
		}
		return words(b, count), success
	}
	// At the end of each chunk are the length and the address of the next one.
	const chunk, link, leaf = 4096, 12, 4096 / 8
	var pages []uint64
	for len(pages) < count {
		if length <= link || length > chunk || (length-link)%8 != 0 {
			return nil, malformed
		}
		b := d.Memory.Bytes(at, int(length))
		if b == nil {
			return nil, malformed
		}
		for _, list := range words(b, int(length-link)/8) {
			n := min(count-len(pages), leaf)
			b := d.Memory.Bytes(list, n*8)
			if b == nil || n == 0 {
				return nil, malformed
			}
			pages = append(pages, words(b, n)...)
		}
		next := b[length-link:]
		length, at = binary.LittleEndian.Uint32(next), binary.LittleEndian.Uint64(next[4:])
	}
	return pages, success
}

func words(b []byte, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return list
}

func (d *Device) deregisterMR(c *command, _ *answer) status {
	m := d.region(c.u32(4))
	if m == nil {
		return illegalParameter
	}
	m.domain.users--
	d.mrs.remove(m.key % maxMR)
	return success
}

// region returns the region with a key.
func (d *Device) region(key uint32) *mr {
	if m := d.mrs.get(key % maxMR); m != nil && m.key == key {
		return m
	}
	return nil
}

// access returns the memory of [addr, addr+n) in pieces, or false if the key doesn't give
// access to it.
func (d *Device) access(key uint32, in uint32, addr uint64, n uint32, permissions uint8) ([][]byte, bool) {
	m := d.region(key)
	if m == nil || m.pd != in || m.permissions&permissions != permissions ||
		addr < m.start || addr-m.start > m.length || uint64(n) > m.length-(addr-m.start) {
		return nil, false
	}
	var pieces [][]byte
	first := m.start >> m.shift
	for left := uint64(n); left > 0; {
		offset := addr & (1<<m.shift - 1)
		size := min(left, 1<<m.shift-offset)
		b := d.Memory.Bytes(m.pages[addr>>m.shift-first]+offset, int(size))
		if b == nil {
			return nil, false
		}
		pieces = append(pieces, b)
		addr += size
		left -= size
	}
	return pieces, true
}

// gather appends the bytes of the pieces to data.
func gather(data []byte, pieces [][]byte) []byte {
	for _, p := range pieces {
		data = append(data, p...)
	}
	return data
}

// scatter copies data to the pieces, which have at least as many bytes.
func scatter(pieces [][]byte, data []byte) {
	for _, p := range pieces {
		data = data[copy(p, data):]
	}
}
