package bus

import (
	"bytes"
	"testing"
)

func TestBufferBytes(t *testing.T) {
	m := &RAM{Base: 0x1000, Data: make([]byte, 0x3000)}
	for i := range m.Data {
		m.Data[i] = byte(i >> 12)
	}
	b := Buffer{Shift: 12, Offset: 0xfc0, Pages: []uint64{0x3000, 0x1000, 0x100000}}
	for _, c := range []struct {
		off  uint64
		n    int
		want []byte
	}{
		{0, 64, bytes.Repeat([]byte{2}, 64)},
		{64, 64, bytes.Repeat([]byte{0}, 64)},
		{32, 64, nil},         // crosses the end of a page
		{0x1040, 64, nil},     // a page that is not RAM
		{0x2040, 64, nil},     // no such page
		{^uint64(0), 64, nil}, // wraps
		{0, -1, nil},
	} {
		if got := b.Bytes(m, c.off, c.n); !bytes.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("[%#x, +%d): % x, want % x", c.off, c.n, got, c.want)
		}
	}
	if (&Buffer{Shift: 64, Pages: []uint64{0x1000}}).Bytes(m, 0, 1) != nil {
		t.Error("pages of 2^64 bytes")
	}
}

func TestByteOrder(t *testing.T) {
	b := make([]byte, 32)
	for _, off := range []int{0, 1} { // aligned or not: the same bytes
		Store32(b[off:], 0x01020304)
		if !bytes.Equal(b[off:off+4], []byte{1, 2, 3, 4}) || Load32(b[off:]) != 0x01020304 {
			t.Errorf("offset %d: % x", off, b[:8])
		}
		StoreLE32(b[off:], 0x01020304)
		if !bytes.Equal(b[off:off+4], []byte{4, 3, 2, 1}) || LoadLE32(b[off:]) != 0x01020304 {
			t.Errorf("offset %d, little-endian: % x", off, b[:8])
		}
		copy(b[off:], []byte{1, 2, 3, 4, 5, 6, 7, 8})
		if v := Load64(b[off:]); v != 0x0102030405060708 {
			t.Errorf("offset %d: %#x", off, v)
		}
	}
	copy(b, []byte{0, 0, 0, 0, 0, 0, 0, 9})
	if CompareAndSwap64(b, 8, 1) || !CompareAndSwap64(b, 9, 0x1000) || Load64(b) != 0x1000 {
		t.Errorf("compare and swap: % x", b[:8])
	}
	if n := testing.AllocsPerRun(100, func() { Store32(b, Load32(b[8:])+uint32(Load64(b[16:]))) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
