//go:build amd64 || arm64

package bpf

import (
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"
)

// ringMemory returns a buffer of n bytes whose data is not there twice.
func ringMemory(n int) (*buffer, []byte) {
	words := make([]uint64, n/8)
	data := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
	return &buffer{consumed: new(uint64), produced: new(uint64), data: data, mask: uint64(n - 1)}, data
}

func (r *buffer) put(data []byte, flags uint32, s string) {
	at := *r.produced & r.mask
	binary.NativeEndian.PutUint32(data[at:], uint32(len(s))|flags)
	copy(data[at+recordHead:], s)
	*r.produced += uint64(recordHead+len(s)+7) &^ 7
}

func TestTake(t *testing.T) {
	r, data := ringMemory(128)
	var got []string
	take := func(want int) {
		t.Helper()
		if n := r.take(func(b []byte) { got = append(got, string(b)) }); n != want {
			t.Errorf("took %d, want %d", n, want)
		}
	}
	take(0)
	r.put(data, 0, "one")
	r.put(data, recordDiscard, "none")
	busy := *r.produced & r.mask
	r.put(data, recordBusy, "two")
	r.put(data, 0, "three is longer")
	take(1)
	binary.NativeEndian.PutUint32(data[busy:], 3)
	take(2)
	take(0)
	if *r.consumed != *r.produced {
		t.Errorf("consumed %d of %d", *r.consumed, *r.produced)
	}
	*r.produced = 1<<32 + 128 - 16 // a record at the end, then one at the beginning
	*r.consumed = *r.produced
	r.put(data, 0, "end")
	r.put(data, 0, "begin")
	take(2)
	if want := []string{"one", "two", "three is longer", "end", "begin"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A busy program can't keep Wait from returning.
func TestTakeBounded(t *testing.T) {
	r, data := ringMemory(16)
	n := 0
	r.put(data, 0, "x")
	r.take(func([]byte) {
		if n++; n > 10*maxTaken {
			t.Fatal("take doesn't end")
		}
		*r.produced += 16
	})
	if n != maxTaken {
		t.Errorf("took %d records, want %d", n, maxTaken)
	}
}
