package histogram

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// TestQuantiles: every percentile is within 1 % of the percentile of the sorted values, for any
// distribution.
func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() int64{
		"uniform":      func() int64 { return random.Int64N(1e6) },
		"small":        func() int64 { return random.Int64N(300) },
		"exponential":  func() int64 { return 900 + int64(random.ExpFloat64()*1e4) },
		"heavy tail":   func() int64 { return int64(1000 / math.Pow(random.Float64(), 1.5)) },
		"two places":   func() int64 { return []int64{1500, 2e9}[random.IntN(2)] },
		"one value":    func() int64 { return 123456789 },
		"powers of 2":  func() int64 { return 1 << random.IntN(41) },
		"before those": func() int64 { return 1<<random.IntN(41) - 1 },
	} {
		var h Histogram
		var all []int64
		for range 100_000 {
			v := draw()
			h.Add(v)
			all = append(all, v)
		}
		slices.Sort(all)
		if h.Count() != uint64(len(all)) || h.Least() != all[0] || h.Most() != all[len(all)-1] {
			t.Errorf("%s: %d values from %d to %d, want %d to %d", name, h.Count(), h.Least(), h.Most(), all[0], all[len(all)-1])
		}
		for _, q := range []float64{0, 0.0001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 1} {
			want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
			if got := h.Quantile(q); math.Abs(float64(got-want)) > 0.002*float64(want) {
				t.Errorf("%s: the quantile %v is %d, want %d", name, q, got, want)
			}
		}
	}
}

// TestBuckets: buckets follow each other, and each has its middle.
func TestBuckets(t *testing.T) {
	for i := range buckets {
		if got := index(middle(i)); got != i {
			t.Fatalf("bucket %d has the middle %d, which is in bucket %d", i, middle(i), got)
		}
	}
	last := 0
	for v := int64(0); v < 1<<topBits; v += 1 + v/2048 {
		i := index(v)
		if i < last || i > last+1 {
			t.Fatalf("%d is in bucket %d, after bucket %d", v, i, last)
		}
		last = i
	}
	var h Histogram
	h.Add(-5)
	h.Add(math.MaxInt64)
	if h.At(0) != 0 || h.Most() != math.MaxInt64 || h.At(1) < 1<<(topBits-1) {
		t.Errorf("extremes: %d, %d, %d", h.At(0), h.At(1), h.Most())
	}
	if h.Reset(); h.Count() != 0 || h.Quantile(0.5) != 0 {
		t.Error("not empty after Reset")
	}
}

// TestEach: the buckets have all values.
func TestEach(t *testing.T) {
	var h Histogram
	for _, v := range []int64{7, 7, 1e6, 3} {
		h.Add(v)
	}
	var values []int64
	var counts []uint64
	h.Each(func(v int64, n uint64) { values, counts = append(values, v), append(counts, n) })
	if !slices.Equal(values[:2], []int64{3, 7}) || !slices.Equal(counts, []uint64{1, 2, 1}) {
		t.Errorf("%v, %v", values, counts)
	}
}

// TestFlat: ten million values take no memory beyond the histogram.
func TestFlat(t *testing.T) {
	h := new(Histogram)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v := int64(1)
	for range 10_000_000 {
		v = (v*6364136223846793005 + 1442695040888963407) & math.MaxInt64
		h.Add(v >> 40)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
		t.Errorf("%d bytes were allocated", grown)
	}
	if h.Count() != 10_000_000 {
		t.Error(h.Count())
	}
}
