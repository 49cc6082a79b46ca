package pci

import (
	"encoding/binary"
	"testing"
)

var function = Function{
	Vendor: 0x15b3, Device: 0x101d, Class: 0x020700, Vectors: 16,
	BARs: map[int]uint64{0: 32 << 20, 4: 1 << 33},
}

func TestConfig(t *testing.T) {
	c := New(function)
	read := func(offset uint64) uint32 {
		var b [4]byte
		c.Read(offset, b[:])
		return binary.LittleEndian.Uint32(b[:])
	}
	write := func(offset uint64, v uint32) {
		c.Write(offset, binary.LittleEndian.AppendUint32(nil, v))
	}
	if read(0) != 0x101d15b3 || read(8)>>8 != 0x020700 {
		t.Errorf("it is %#x of class %#x", read(0), read(8)>>8)
	}
	write(0, 0)
	if read(0) == 0 {
		t.Error("its vendor can be changed")
	}
	// Determine the sizes of the BARs.
	for number := range uint64(6) {
		write(bar0+4*number, 0xffffffff)
	}
	for number := uint64(0); number < 6; number += 2 {
		low, high := read(bar0+4*number), read(bar0+4*number+4)
		want, flags := function.BARs[int(number)], uint32(0xc)
		if want == 0 {
			flags = 0
		}
		if size := -(uint64(high)<<32 | uint64(low&^0xf)); size != want || low&0xf != flags {
			t.Errorf("BAR %d has %#x bytes and flags %#x", number, size, low&0xf)
		}
	}
	found := map[byte]bool{}
	for at, n := uint64(read(capabilities)&0xff), 0; at != 0; n++ {
		if at%4 != 0 || n > 8 {
			t.Fatalf("the list of capabilities goes on at %#x", at)
		}
		found[byte(read(at))] = true
		at = uint64(read(at) >> 8 & 0xff)
	}
	for _, id := range []byte{0x01, 0x10, 0x11} {
		if !found[id] {
			t.Errorf("capability %#x is missing", id)
		}
	}
	if n := read(capMSIX) >> 16 & 0x7ff; n != 15 {
		t.Errorf("the last vector is %d", n)
	}
	c.Read(Size-2, make([]byte, 8))
	c.Write(Size-2, make([]byte, 8))
	c.Remove(true)
	if read(0) != 0xffffffff {
		t.Error("it answers although it is gone")
	}
}

// FuzzConfig accesses the space anywhere, in any size. The function's identification never
// changes.
func FuzzConfig(f *testing.F) {
	f.Add(uint64(0), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint64(bar0), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(^uint64(0)-1, make([]byte, 8))
	f.Fuzz(func(t *testing.T, offset uint64, data []byte) {
		c := New(function)
		c.Write(offset, data)
		c.Read(offset, data)
		var id [4]byte
		c.Read(0, id[:])
		if binary.LittleEndian.Uint32(id[:]) != 0x101d15b3 {
			t.Errorf("it is % x after a write of %d bytes to %#x", id, len(data), offset)
		}
	})
}
