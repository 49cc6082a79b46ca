package provider

import "testing"

func TestTooLong(t *testing.T) {
	for _, x := range []struct {
		lengths []uint32
		want    bool
	}{
		{nil, false},
		{[]uint32{1<<31 - 1}, false},
		{[]uint32{1 << 31}, true},
		{[]uint32{1<<32 - 1}, true},
		{[]uint32{1 << 30, 1<<30 - 1}, false},
		{[]uint32{1 << 30, 1 << 30}, true},
		{[]uint32{1 << 31, 1 << 31}, true},
		{[]uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}, true},
	} {
		var sgl []SGE
		for _, n := range x.lengths {
			sgl = append(sgl, SGE{Length: n})
		}
		if got := TooLong(sgl); got != x.want {
			t.Errorf("%v: %v", x.lengths, got)
		}
	}
}
