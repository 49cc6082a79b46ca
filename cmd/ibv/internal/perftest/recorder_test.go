package perftest

import (
	"math"
	"runtime"
	"testing"
)

// near reports whether a number of a histogram is the wanted number, within its precision.
func near(got, want float64) bool { return math.Abs(got-want) <= 0.001*want }

func TestSummarise(t *testing.T) {
	// 100 latencies of 2, 4, … 200 µs there and back.
	record := func(oneWay bool, n int64) *recorder {
		r := newRecorder(oneWay, 100)
		at := int64(0)
		r.stamp(at)
		for i := range n {
			at += 2000 * (i + 1)
			r.stamp(at)
		}
		return r
	}
	l := record(true, 100).summarise(64)
	if l.iters != 101 || l.least != 1 || l.most != 99 || !near(l.typical, 49.5) || !near(l.average, 49.5) || !near(l.p99, 99) || !near(l.p999, 99) {
		t.Errorf("%+v", l)
	}
	if want := math.Sqrt((98*98 - 1) / 12.0); !near(l.stdev, want) {
		t.Errorf("the standard deviation is %v, want %v", l.stdev, want)
	}
	r := record(false, 100)
	if l := r.summarise(64); l.least != 2 || l.most != 198 {
		t.Errorf("%+v", l)
	}
	if all, sorted := r.unsorted(), r.sorted(); len(all) != 100 || len(sorted) != 98 || all[99] != 200 || sorted[97] != 196 {
		t.Errorf("%v, %v", all, sorted)
	}
	// The smallest number of iterations.
	if l := record(true, 4).summarise(64); l.least != 1 || l.most != 3 || !near(l.typical, 1.5) {
		t.Errorf("%+v", l)
	}
}

// TestRecorderFlat: memory doesn't grow with the number of latencies.
func TestRecorderFlat(t *testing.T) {
	r := newRecorder(true, 0)
	at := int64(0)
	stamp := func(n int) {
		for range n {
			at += 1500 + at*2654435761>>20&0x3ff
			r.stamp(at)
		}
	}
	stamp(1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stamp(10_000_000)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
		t.Errorf("%d bytes were allocated", grown)
	}
	if l := r.summarise(2); l.iters != 10_001_000 || len(r.course.spans) > maxSpans || len(r.course.spans) < maxSpans/2 {
		t.Errorf("%+v, %d spans", l, len(r.course.spans))
	}
}

func TestCourse(t *testing.T) {
	var c course
	c.begin(0)
	n := int64(0)
	for at := int64(1); at < 1e9; at += 1 + at/3 {
		c.add(at, at)
		n++
	}
	if len(c.spans) > maxSpans || c.next != c.start+int64(len(c.spans))*c.width || c.width*maxSpans < 5e8 {
		t.Errorf("%d spans of %d", len(c.spans), c.width)
	}
	for i, s := range c.spans {
		if n -= s.n; s.n > 0 && (s.least < int64(i)*c.width || s.most >= int64(i+1)*c.width || s.sum < s.least || s.sum > s.n*s.most) {
			t.Errorf("span %d of %d: %+v", i, c.width, s)
		}
	}
	if n != 0 {
		t.Errorf("%d values are missing", n)
	}
	if got := (span{}).merge(span{1, 5, 5, 5}).merge(span{}).merge(span{2, 4, 1, 3}); got != (span{3, 9, 1, 5}) {
		t.Errorf("%+v", got)
	}
}

func BenchmarkStamp(b *testing.B) {
	r := newRecorder(true, 0)
	at := int64(0)
	for i := 0; b.Loop(); i++ {
		at += 1500 + int64(i*2654435761>>20&0x3ff)
		r.stamp(at)
	}
}
