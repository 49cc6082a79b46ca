package scenario

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// Lengths are sorted, each once, with both neighbours of each limit.
func TestLengths(t *testing.T) {
	list := Lengths(1024, 4<<20, 200)
	if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
		t.Errorf("%d", list)
	}
	for _, n := range []int{0, 1, 199, 200, 201, 1023, 1024, 1025, 2047, 2048, 2049, 4 << 20} {
		if !slices.Contains(list, n) {
			t.Errorf("no length %d", n)
		}
	}
	if list := Lengths(1024, 65536, 200); slices.Max(list) != 65536 {
		t.Errorf("a length of %d with 65536 bytes of memory", slices.Max(list))
	}
}

// Each operation of each transport has each length, in one piece, in several and inline.
func TestExchanges(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.XRCSend, verbs.DCI} {
		list := Exchanges(typ, 1024, 1<<20, 200, 4)
		for _, op := range operations(typ) {
			kinds := map[string]int{}
			for _, x := range list {
				switch {
				case x.Op != op:
				case x.Inline:
					kinds["inline"]++
				case x.From > 1 || x.To > 1:
					kinds["pieces"]++
				default:
					kinds["one"]++
				}
				if typ == verbs.UD && x.N > 1024 {
					t.Errorf("a datagram of %d bytes", x.N)
				}
			}
			if kinds["one"] < 20 || kinds["pieces"] < 20 || kinds["inline"] < 10 && op != verbs.OpRDMARead {
				t.Errorf("%v %v: %v", typ, op, kinds)
			}
		}
	}
}

// No exchange needs more inline bytes or entries than a request holds.
func TestExchangesWithLess(t *testing.T) {
	for sges := 1; sges <= 4; sges++ {
		for _, inline := range []int{0, 60} {
			for _, x := range Exchanges(verbs.RC, 1024, 1<<20, inline, sges) {
				if max(x.From, x.To) > sges || x.Inline && (inline == 0 || x.N > inline) {
					t.Errorf("%v of %d bytes, with %d entries and %d inline bytes", x, x.N, sges, inline)
				}
			}
		}
	}
}

// The cases of atomics distinguish operands, results and carries.
func TestAtomicCases(t *testing.T) {
	for _, x := range Atomics(5) {
		if x.Masked {
			continue
		}
		new := x.old
		switch {
		case x.wr.Opcode == verbs.OpFetchAdd:
			new += x.wr.Add
		case x.wr.Compare == x.old:
			new = x.wr.Swap
		}
		if new != x.new {
			t.Errorf("%s: %#x becomes %#x, want %#x", x.Name, x.old, x.new, new)
		}
	}
}
