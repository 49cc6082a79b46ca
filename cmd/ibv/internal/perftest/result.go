package perftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// A Result is the object that --json prints and `ibv plot` reads.
type Result struct {
	Test       string    `json:"test"`
	Time       time.Time `json:"time"`
	Host       string    `json:"host"`
	Peer       string    `json:"peer,omitempty"` // of a client
	Device     string    `json:"device"`
	Link       string    `json:"link"`
	LinkGbits  float64   `json:"link_gbits"`
	MTU        int       `json:"mtu"`
	Connection string    `json:"connection"`
	QPs        int       `json:"queue_pairs"`
	TXDepth    int       `json:"tx_depth"`
	PostList   int       `json:"post_list"`
	Duplex     bool      `json:"bidirectional"`
	Events     bool      `json:"events"`
	Sizes      []Size    `json:"results"`
	CPU        CPU       `json:"cpu_us_per_message"`
	Limit      string    `json:"limit,omitempty"` // the limit of the bandwidth, if the numbers show it
}

// CPU is the processor time for each message, in µs.
type CPU struct {
	Local  float64  `json:"local"`
	Remote *float64 `json:"remote,omitempty"` // if the other side is ibv
}

// A Size is the result of one size.
type Size struct {
	Bytes     int        `json:"bytes"`
	Messages  int        `json:"messages"`
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
	Latency   *Latency   `json:"latency,omitempty"`
}

// A Bandwidth is in Gb/s.
type Bandwidth struct {
	Peak     float64 `json:"peak_gbits,omitempty"`
	Average  float64 `json:"average_gbits"`
	Limit    float64 `json:"limit_gbits,omitempty"` // the bandwidth that the link can carry with such messages
	Messages float64 `json:"messages_per_second"`
}

// A Latency has times in µs. Percentiles are of all messages. The other values leave out the two
// longest times, as perftest does.
type Latency struct {
	Least       float64      `json:"min"`
	Typical     float64      `json:"typical"`
	Average     float64      `json:"mean"`
	Stdev       float64      `json:"stdev"`
	Most        float64      `json:"max"`
	Percentiles []Percentile `json:"percentiles"`
	Buckets     []Bucket     `json:"buckets"`
	Course      []Interval   `json:"course"`
}

// A Percentile is the least time that this percentage of the messages doesn't exceed.
type Percentile struct {
	Percent float64 `json:"percent"`
	Time    float64 `json:"time"`
}

// A Bucket has the messages with times near this one.
type Bucket struct {
	Time  float64 `json:"time"`
	Count uint64  `json:"messages"`
}

// An Interval is a part of the run. It begins at a second after the run's begin.
type Interval struct {
	Second  float64 `json:"second"`
	Least   float64 `json:"min"`
	Average float64 `json:"mean"`
	Most    float64 `json:"max"`
}

// ReadResult reads a file that --json has written.
func ReadResult(name string) (*Result, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w (%w)", name, errNoResult, err)
	}
	for _, s := range r.Sizes {
		if s.Bytes < 1 || (s.Bandwidth == nil) == (s.Latency == nil) {
			return nil, fmt.Errorf("%s: a result of %d bytes has neither a bandwidth nor latencies, or both", name, s.Bytes)
		}
	}
	if len(r.Sizes) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoResult)
	}
	return r, nil
}

var errNoResult = errors.New("there is no result: use a file that --json has written")

// The percentiles of a summary.
var percents = []float64{50, 90, 99, 99.9, 99.99}

// percentiles returns enough percentages for a curve, up to the last that the number of messages
// supports.
func percentiles(n uint64) (all []float64) {
	const perDecade = 8
	for i := range 5*perDecade + 1 {
		beyond := math.Pow(10, -float64(i)/perDecade)
		if i > 0 && beyond*float64(n) < 1 {
			break
		}
		all = append(all, 100*(1-beyond))
	}
	for _, p := range percents {
		at := 0
		for at < len(all) && all[at] < p-1e-6 {
			at++
		}
		if at == len(all) || all[at] > p+1e-6 {
			all = slices.Insert(all, at, p)
		}
	}
	return all
}

// result returns the times for the file.
func (r *recorder) result(l latency) *Latency {
	h := &r.hist
	if h.Count() == 0 {
		return &Latency{}
	}
	out := &Latency{Least: float64(h.Least()) / r.unit, Typical: l.typical, Average: l.average, Stdev: l.stdev, Most: float64(h.Most()) / r.unit}
	for _, p := range percentiles(h.Count()) {
		out.Percentiles = append(out.Percentiles, Percentile{p, float64(h.Quantile(p/100)) / r.unit})
	}
	// 32 buckets for each doubling.
	last := math.MinInt
	h.Each(func(v int64, n uint64) {
		i := int(math.Floor(32 * math.Log2(float64(max(v, 1)))))
		if i != last {
			out.Buckets = append(out.Buckets, Bucket{Time: math.Exp2((float64(i)+0.5)/32) / r.unit})
			last = i
		}
		out.Buckets[len(out.Buckets)-1].Count += n
	})
	for i, s := range r.course.spans {
		if s.n > 0 {
			out.Course = append(out.Course, Interval{
				Second: float64(int64(i)*r.course.width) / 1e9,
				Least:  float64(s.least) / r.unit, Average: float64(s.sum) / float64(s.n) / r.unit, Most: float64(s.most) / r.unit,
			})
		}
	}
	return out
}

// supports reports whether there are messages beyond a percentile.
func (l *Latency) supports(percent float64, messages int) bool {
	return float64(messages)*(100-percent) >= 100
}

// wantsTimes reports whether a run with a duration records times. perftest's table needs none.
func (o *options) wantsTimes() bool { return o.asJSON || o.plot != "" || o.summary }

// kept returns how many individual times are kept.
func (o *options) kept() int {
	if o.duration == 0 && (o.unsorted || o.histogram) {
		return o.iters
	}
	return 0
}

// result returns the run's result.
func (s *side) result() *Result {
	r := &Result{
		Test: s.tool.Name, Time: time.Now().Round(time.Second), Peer: s.host, Device: s.dev.Info().Name(), Link: s.linkName(),
		LinkGbits: s.linkGbits(), MTU: s.mtuInUse(), Connection: s.transport.name, QPs: s.queues(), TXDepth: s.txDepth,
		PostList: s.postList, Duplex: s.duplex, Events: s.events, Sizes: s.report.sizes, Limit: s.report.limit,
	}
	r.Host, _ = os.Hostname()
	messages := max(s.cost.messages, s.theirCost.messages)
	r.CPU.Local = s.cost.perMessage(messages)
	if s.theirCost != (cost{}) {
		remote := s.theirCost.perMessage(messages)
		r.CPU.Remote = &remote
	}
	return r
}

// finish writes the output after the table.
func (s *side) finish() error {
	if err := s.writeJSON(); err != nil || len(s.report.sizes) == 0 {
		return err
	}
	if s.summary && s.full() {
		s.printSummary()
	}
	if s.asJSON {
		if err := cli.JSON(s.result()); err != nil {
			return err
		}
	}
	if s.plot == "" {
		return nil
	}
	page, err := Draw(s.result())
	if err != nil {
		return err
	}
	return page.WriteFile(s.plot)
}
