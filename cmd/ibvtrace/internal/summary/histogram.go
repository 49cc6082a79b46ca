package summary

import (
	"math"
	"math/bits"
	"time"
)

// subBits is the number of bits after a duration's first that select its bucket. The error of
// a quantile is at most 1 in 2^subBits, or 3 %.
const subBits = 5

// A histogram counts durations in buckets. Each duration below 2^subBits ns has a bucket of its
// own. Above, each power of two is split into 2^subBits buckets.
type histogram struct {
	n        uint64
	sum      time.Duration
	min, max time.Duration
	buckets  [(64 - subBits) << subBits]uint64
}

func bucket(d time.Duration) int {
	u := uint64(max(d, 0))
	if u < 1<<subBits {
		return int(u)
	}
	shift := bits.Len64(u) - 1 - subBits
	return (shift+1)<<subBits + int(u>>shift) - 1<<subBits
}

// lowest returns the shortest duration of a bucket.
func lowest(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	return time.Duration(1<<subBits+i&(1<<subBits-1)) << shift
}

func (h *histogram) add(d time.Duration) {
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += d
	h.buckets[bucket(d)]++
}

func (h *histogram) mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return h.sum / time.Duration(h.n)
}

// quantile returns the duration that a fraction q of all durations does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	need := max(uint64(math.Ceil(q*float64(h.n))), 1)
	var seen uint64
	for i, n := range &h.buckets {
		if seen += n; seen >= need {
			return min(max(lowest(i), h.min), h.max)
		}
	}
	return h.max
}
