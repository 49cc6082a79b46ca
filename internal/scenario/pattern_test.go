package scenario

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// Pieces have all bytes, don't overlap, and have a gap between them.
func TestDivide(t *testing.T) {
	for n := range 300 {
		for k := 1; k <= 4; k++ {
			list := divide(n, k, 100)
			if total(list) != n || len(list) != min(n, k) {
				t.Fatalf("%d bytes in %d pieces: %v", n, k, list)
			}
			at := 100
			for i, p := range list {
				if p.Off != at || p.N < 1 {
					t.Errorf("%d bytes in %d pieces: piece %d of %v", n, k, i, list)
				}
				at += p.N + gap
			}
			if n > 0 && at-gap-100 != extent(n, k) {
				t.Errorf("%d bytes in %d pieces end at %d, not %d", n, k, at-gap-100, extent(n, k))
			}
		}
	}
}

func TestScatterGather(t *testing.T) {
	pieces := divide(1000, 3, 20)
	data := make([]byte, 1000)
	Fill(data, 7)
	window := make([]byte, 1300)
	scatter(window, pieces, data)
	if !bytes.Equal(gather(nil, window, pieces), data) {
		t.Error("what was scattered is not what is gathered")
	}
	if n := len(window) - bytes.Count(window, []byte{0}); n > 1000 {
		t.Errorf("%d bytes were written", n)
	}
}

// The pattern differs everywhere from a shifted copy, and from the pattern of another seed.
func TestFill(t *testing.T) {
	a, b := make([]byte, 8192), make([]byte, 8192)
	Fill(a, 1)
	Fill(b, 2)
	same := func(x, y []byte) (n int) {
		for i := range y {
			if x[i] == y[i] {
				n++
			}
		}
		return n
	}
	if n := same(a, b); n > 8192/64 {
		t.Errorf("%d bytes of two seeds are equal", n)
	}
	for _, shift := range []int{1, 4, 8, 64, 1024, 4096} {
		if n := same(a, a[shift:]); n > 8192/64 {
			t.Errorf("%d bytes are equal to those %d further on", n, shift)
		}
	}
}

func TestDifferences(t *testing.T) {
	pieces := []Piece{{10, 20}, {40, 20}}
	want, was := make([]byte, 80), bytes.Repeat([]byte{0xee}, 80)
	Fill(want, 3)
	for _, tt := range []struct {
		name string
		at   int
		to   byte
		seen []string
	}{
		{"a wrong byte", 12, want[12] ^ 1, []string{"1 of 40 bytes differ", "byte 2 to byte 2", "other bytes"}},
		{"a byte of the second piece", 41, want[41] ^ 1, []string{"byte 21"}},
		{"not written", 15, 0xee, []string{"not written"}},
		{"before", 5, want[5] ^ 1, []string{"5 bytes before the data"}},
		{"between", 35, want[35] ^ 1, []string{"the gap before piece 1"}},
		{"after", 62, want[62] ^ 1, []string{"2 bytes after the data"}},
	} {
		got := slices.Clone(want)
		got[tt.at] = tt.to
		seen, details := Differences(got, want, was, pieces)
		for _, s := range tt.seen {
			if !strings.Contains(seen, s) {
				t.Errorf("%s: %q doesn't say %q", tt.name, seen, s)
			}
		}
		if len(details) != 2 {
			t.Errorf("%s: %q", tt.name, details)
		}
	}
	if seen, _ := Differences(want, want, was, pieces); seen != "" {
		t.Errorf("no difference: %s", seen)
	}
}
