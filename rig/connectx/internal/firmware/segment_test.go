package firmware

import (
	"encoding/binary"
	"testing"
	"time"
)

// The bytes of a word are those of one moment.
func TestClockIsWhole(t *testing.T) {
	at := time.Duration(0)
	s := &segment{now: func() time.Duration {
		at += 0xffffff
		return at
	}}
	last := uint32(0)
	for range 100 {
		var word [4]byte
		s.read(segTimerLow, word[:])
		if now := binary.BigEndian.Uint32(word[:]); now != last+0xffffff {
			t.Fatalf("%#x after %#x", now, last)
		} else {
			last = now
		}
	}
}
