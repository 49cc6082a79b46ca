package perftest

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/goverbs/goverbs/cmd/ibv/internal/histogram"
)

// A latency is the result of one size of a latency test. Times are in µs.
type latency struct {
	size, iters    int
	least, most    float64
	typical        float64
	average, stdev float64
	p99, p999      float64
	perSecond      float64   // of a test with a duration, which has only this and the average
	times          *recorder // nil if they were not recorded
}

// The largest values are left out, because a single interrupt is not the network's fault.
const outliers = 2

// A recorder records the times of one size, in nanoseconds, in constant memory. A time is the
// interval between two messages.
type recorder struct {
	hist    histogram.Histogram
	course  course
	unit    float64         // nanoseconds in a µs of latency: 1000 for each message between two times
	last    int64           // post time of the last message; -1: none yet
	largest [outliers]int64 // the largest first
	first   int64
	sum     float64 // of the differences to first, and of their squares
	squares float64

	all []int // all times in their order; nil if they are not needed

	asked atomic.Bool  // the progress asks for p99
	p99   atomic.Int64 // of the times so far
}

// newRecorder returns a recorder that also keeps the first keep times.
func newRecorder(oneWay bool, keep int) *recorder {
	r := &recorder{unit: 1e3, last: -1}
	if keep > 0 {
		r.all = make([]int, 0, keep)
	}
	if oneWay {
		r.unit = 2e3
	}
	return r
}

// stamp records the time at which a message is posted.
func (r *recorder) stamp(now int64) {
	if r.last >= 0 {
		r.add(now, now-r.last)
	}
	r.last = now
}

func (r *recorder) add(now, v int64) {
	if r.hist.Count() == 0 {
		r.first = v
		r.course.begin(now - v)
	}
	r.hist.Add(v)
	r.course.add(now, v)
	d := float64(v - r.first)
	r.sum += d
	r.squares += d * d
	if v > r.largest[1] {
		r.largest[1] = v
		if v > r.largest[0] {
			r.largest[0], r.largest[1] = v, r.largest[0]
		}
	}
	if r.all != nil {
		r.all = append(r.all, int(v))
	}
}

// answer tells the progress the 99th percentile of the times so far, and reports whether it has asked.
func (r *recorder) answer() bool {
	if !r.asked.Load() {
		return false
	}
	r.asked.Store(false)
	r.p99.Store(r.hist.Quantile(0.99))
	return true
}

// summarise computes perftest's numbers. It needs more than two times.
func (r *recorder) summarise(size int) latency {
	n := int(r.hist.Count()) - outliers
	l := latency{size: size, iters: n + outliers + 1, times: r}
	most := r.largest[outliers-1]
	at := func(rank int) float64 { return float64(min(r.hist.At(uint64(rank)), most)) / r.unit }
	l.least, l.most = float64(r.hist.Least())/r.unit, float64(most)/r.unit
	l.typical = at(n / 2)
	if n%2 == 0 {
		l.typical = (at(n/2) + at(n/2-1)) / 2
	}
	sum, squares := r.sum, r.squares
	for _, v := range r.largest {
		d := float64(v - r.first)
		sum -= d
		squares -= d * d
	}
	mean := sum / float64(n)
	l.average = (float64(r.first) + mean) / r.unit
	l.stdev = math.Sqrt(max(squares/float64(n)-mean*mean, 0)) / r.unit
	l.p99 = at(int(math.Ceil(float64(n) * 0.99)))
	l.p999 = at(int(math.Ceil(float64(n) * 0.999)))
	return l
}

// typical returns the median and the standard deviation of all times.
func (r *recorder) typical() (median, stdev float64) {
	n := float64(r.hist.Count())
	mean := r.sum / n
	return float64(r.hist.Quantile(0.5)) / r.unit, math.Sqrt(max(r.squares/n-mean*mean, 0)) / r.unit
}

// unsorted returns all latencies in their order.
func (r *recorder) unsorted() []float64 { return r.inMicroseconds(r.all) }

func (r *recorder) inMicroseconds(times []int) []float64 {
	all := make([]float64, len(times))
	for i, v := range times {
		all[i] = float64(v) / r.unit
	}
	return all
}

// sorted returns all latencies except the largest, sorted.
func (r *recorder) sorted() []float64 {
	all := slices.Sorted(slices.Values(r.all))
	return r.inMicroseconds(all[:len(all)-outliers])
}

// maxSpans bounds the number of a course's spans.
const maxSpans = 240

// A course has the values over time, in spans of equal length. When there are too many, pairs of
// spans are merged.
type course struct {
	start, width int64
	next         int64 // where the current span ends
	spans        []span
}

// A span has the values of one span of time.
type span struct {
	n           int64
	sum         int64
	least, most int64
}

func (c *course) begin(now int64) {
	c.start, c.width = now, 1000
	c.next = now + c.width
	c.spans = append(make([]span, 0, maxSpans), span{})
}

func (c *course) add(now, v int64) {
	for now >= c.next {
		if len(c.spans) == maxSpans {
			c.halve()
			continue
		}
		c.spans = append(c.spans, span{})
		c.next += c.width
	}
	s := &c.spans[len(c.spans)-1]
	if s.n == 0 || v < s.least {
		s.least = v
	}
	s.most = max(s.most, v)
	s.n++
	s.sum += v
}

func (c *course) halve() {
	for i := 0; i < len(c.spans); i += 2 {
		c.spans[i/2] = c.spans[i].merge(c.spans[i+1])
	}
	c.spans = c.spans[:len(c.spans)/2]
	c.width *= 2
	c.next = c.start + int64(len(c.spans))*c.width
}

func (s span) merge(t span) span {
	switch {
	case s.n == 0:
		return t
	case t.n == 0:
		return s
	}
	return span{s.n + t.n, s.sum + t.sum, min(s.least, t.least), max(s.most, t.most)}
}
