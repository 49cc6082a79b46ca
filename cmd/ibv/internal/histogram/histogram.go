// Package histogram counts latencies in constant memory.
package histogram

import "math/bits"

// Buckets are as wide as 1/512 of their values or narrower. Values below 1024 have a
// bucket each.
const (
	subBits = 9
	halves  = 1 << subBits
	topBits = 42 // values from 2⁴² on, over an hour in nanoseconds, are in the last bucket
	buckets = (topBits-subBits-1)<<subBits + 2*halves
)

// A Histogram counts values, such as nanoseconds. Its size doesn't depend on their
// number. The zero Histogram is empty. One goroutine at a time may use it.
type Histogram struct {
	counts [buckets]uint64
	n      uint64
	least  int64
	most   int64
}

// index returns a value's bucket. The bucket i << s of values that need s bits more than
// the narrowest buckets have follows those of s-1 bits.
func index(v int64) int {
	shift := bits.Len64(uint64(v)|(2*halves-1)) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// middle returns the value in the middle of a bucket.
func middle(i int) int64 {
	if i < 2*halves {
		return int64(i)
	}
	shift := i>>subBits - 1
	return int64(i-shift<<subBits)<<shift + 1<<(shift-1)
}

// Add counts a value. A value below 0 counts as 0.
func (h *Histogram) Add(v int64) {
	if v = max(v, 0); v > h.most {
		h.most = v
	}
	if v < h.least || h.n == 0 {
		h.least = v
	}
	h.n++
	h.counts[index(min(v, 1<<topBits-1))]++
}

// Count returns the number of values.
func (h *Histogram) Count() uint64 { return h.n }

// Least and Most return the least and the largest value.
func (h *Histogram) Least() int64 { return h.least }
func (h *Histogram) Most() int64  { return h.most }

// At returns the value at index rank of the sorted values, within 0.1 %.
// The rank must be less than Count.
func (h *Histogram) At(rank uint64) int64 {
	for i, n := range h.counts {
		if rank < n {
			return min(max(middle(i), h.least), h.most)
		}
		rank -= n
	}
	return h.most
}

// Quantile returns the least value that at least the fraction q of the values doesn't
// exceed. q is from 0 to 1. Without values, it returns 0.
func (h *Histogram) Quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	if rank > 0 && float64(rank) == q*float64(h.n) {
		rank--
	}
	return h.At(min(rank, h.n-1))
}

// Each calls f for each bucket that isn't empty, with the value in its middle.
func (h *Histogram) Each(f func(value int64, count uint64)) {
	for i, n := range h.counts {
		if n > 0 {
			f(min(max(middle(i), h.least), h.most), n)
		}
	}
}

// Reset empties the histogram.
func (h *Histogram) Reset() { *h = Histogram{} }
