package histogram

import (
	"math/rand/v2"
	"syscall"
	"testing"
)

// BenchmarkAdd also reports the processor's time, which doesn't depend on other programs.
func BenchmarkAdd(b *testing.B) {
	h := new(Histogram)
	// Latencies of about 2 µs, as of a network.
	values := make([]int64, 1<<12)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = 1800 + int64(random.ExpFloat64()*300)
	}
	b.ReportAllocs()
	before := used()
	for i := 0; b.Loop(); i++ {
		h.Add(values[i&(1<<12-1)])
	}
	b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op")
}

func used() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
