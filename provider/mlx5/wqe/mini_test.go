package wqe

import (
	"encoding/binary"
	"testing"
)

// TestMinis: an array has eight mini CQEs, each of two words.
func TestMinis(t *testing.T) {
	var c CQE
	b := raw(&c)
	for i := range b {
		b[i] = byte(0x81 + i)
	}
	for i, m := range c.Minis() {
		for j, got := range m {
			if want := binary.NativeEndian.Uint32(b[8*i+4*j:]); got != want {
				t.Errorf("word %d of mini %d is %#x, want %#x", j, i, got, want)
			}
		}
	}
}

// TestPathBits: seven bits of the byte are the path's, and the other one is not.
func TestPathBits(t *testing.T) {
	var c CQE
	for bit := range 8 {
		raw(&c)[17] = 1 << bit
		if got, want := c.PathBits(), uint8(1<<bit&0x7f); got != want {
			t.Errorf("bit %d: %#x, want %#x", bit, got, want)
		}
	}
}
