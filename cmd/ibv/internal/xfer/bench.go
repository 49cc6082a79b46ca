package xfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/histogram"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/xfer"
)

// A Plan is what bench measures: each size with each number of operations at a time, over all rails.
type Plan struct {
	Op    string
	Sizes []int
	At    []int
	Time  time.Duration
	Each  bool // also over each rail by itself
}

// maxAtATime operations are measured at a time.
const maxAtATime = 4096

func (o *options) bench(ctx context.Context, operands []string) error {
	r, err := o.benched(ctx, operands[0])
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	case errors.Is(err, syscall.ECONNREFUSED): // a hint follows
	default:
		err = errors.New(stranger.Text(err.Error()))
	}
	if r == nil || len(r.Rows) == 0 {
		return err
	}
	if o.json {
		err = errors.Join(err, cli.JSON(r))
	} else {
		r.print(&cli.Stdout)
	}
	if o.picture != "" {
		err = errors.Join(err, r.draw().WriteFile(o.picture))
	}
	return err
}

// benched measures what the plan says. With an error it returns what was measured before.
func (o *options) benched(ctx context.Context, host string) (*Result, error) {
	c, err := o.dial(ctx, host)
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.answers()
	here, _ := os.Hostname()
	r := &Result{Time: time.Now(), Op: o.Op, Host: here, Server: c.host}
	sets := [][]string{list(o.devices)}
	for i := 0; i < len(sets); i++ {
		rails, err := o.over(ctx, c, sets[i], r)
		if err != nil {
			return r, err
		}
		for _, rail := range rails {
			if i == 0 && o.Each && len(rails) > 1 {
				sets = append(sets, []string{rail})
			}
		}
	}
	return r, nil
}

// over measures over some devices, and returns their rails.
func (o *options) over(ctx context.Context, c *client, devices []string, r *Result) ([]string, error) {
	engine, err := xfer.Open(xfer.Options{Devices: devices, TLS: c.tls})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	mine, err := engine.Alloc(slots * slotBytes)
	if err != nil {
		return nil, err
	}
	peer, err := engine.Dial(ctx, address(c.host, c.port))
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	if err := connected(ctx, peer); err != nil {
		return nil, err
	}
	for _, size := range o.Sizes {
		for _, at := range o.At {
			m := &meter{peer: peer, period: o.Time}
			for i := range at {
				off := i % (slots * slotBytes / size) * size
				run := &run{meter: m}
				if o.Op == "read" {
					run.batch.Read(mine.Slice(off, size), c.far.Slice(off, size))
				} else {
					run.batch.Write(c.far.Slice(off, size), mine.Slice(off, size))
				}
				run.batch.OnDone = run.done
				m.runs = append(m.runs, run)
			}
			row, err := m.measure(ctx)
			if err != nil {
				return nil, err
			}
			row.Rails, row.Bytes, row.At = strings.Join(engine.Rails(), ","), size, at
			row.PerSecond = float64(row.Operations) / row.Seconds
			row.Gbits = row.PerSecond * float64(size) * 8 / 1e9
			r.Rows = append(r.Rows, row)
		}
	}
	return engine.Rails(), nil
}

// connected waits until all lanes have their queue pairs. If one doesn't get any, the measurement shows
// that.
func connected(ctx context.Context, peer *xfer.Peer) error {
	if err := peer.Do(ctx, new(xfer.Batch)); err != nil {
		return err
	}
	down := func(l xfer.LaneStats) bool { return !l.Up }
	for start := time.Now(); slices.ContainsFunc(peer.Stats().Lanes, down); time.Sleep(time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Since(start) > 5*time.Second {
			break
		}
	}
	return nil
}

// A meter measures operations that run at the same time.
type meter struct {
	peer    *xfer.Peer
	runs    []*run
	period  time.Duration
	end     time.Time
	running sync.WaitGroup

	mu    sync.Mutex
	times histogram.Histogram
	err   error
}

// A run is one operation after the other.
type run struct {
	*meter
	batch xfer.Batch
	began time.Time
}

// measure runs all for the period.
func (m *meter) measure(ctx context.Context) (row Row, err error) {
	stop := context.AfterFunc(ctx, func() { m.fail(ctx.Err()) })
	defer stop()
	before := shares(m.peer.Stats())
	start := time.Now()
	m.end = start.Add(m.period)
	for _, r := range m.runs {
		m.running.Add(1)
		r.start(time.Now())
	}
	m.running.Wait()
	took := time.Since(start)
	if m.err != nil {
		return row, m.err
	}
	row.Seconds, row.Operations = took.Seconds(), m.times.Count()
	row.Latency = Latency{micros(m.times.Quantile(0.5)), micros(m.times.Quantile(0.99)), micros(m.times.Most())}
	for i, s := range shares(m.peer.Stats()) {
		if i < len(before) {
			s.Bytes -= before[i].Bytes
		}
		s.Gbits = gbits(s.Bytes, took)
		row.Shares = append(row.Shares, s)
	}
	return row, nil
}

func micros(ns int64) float64 { return float64(ns) / 1000 }

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}

func (r *run) start(now time.Time) {
	r.began = now
	if err := r.peer.Start(&r.batch); err != nil {
		r.fail(err)
		r.running.Done()
	}
}

// done counts an operation, and starts the next one.
func (r *run) done(b *xfer.Batch) {
	now := time.Now()
	if err := b.Err(); err != nil {
		r.fail(err)
	}
	r.mu.Lock()
	r.times.Add(int64(now.Sub(r.began)))
	over := r.err != nil
	r.mu.Unlock()
	if over || now.After(r.end) {
		r.running.Done()
		return
	}
	r.start(now)
}

// A Result is the object that bench --json prints.
type Result struct {
	Time   time.Time `json:"time"`
	Op     string    `json:"op"`
	Host   string    `json:"host"`
	Server string    `json:"server"`
	Rows   []Row     `json:"results"`
}

// A Row is the result for one size, and one number of operations at a time.
type Row struct {
	Rails      string  `json:"rails"` // separated by commas
	Bytes      int     `json:"bytes"` // of an operation
	At         int     `json:"at_a_time"`
	Operations uint64  `json:"operations"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"operations_per_second"`
	Gbits      float64 `json:"gbits"`
	Latency    Latency `json:"latency_us"`
	Shares     []Share `json:"shares"` // of the rails
}

// A Latency is how long operations took, in µs.
type Latency struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"max"`
}

func (r *Row) String() string {
	text := fmt.Sprintf("%9d %9d %14.0f %9.3f %11.2f %11.2f", r.Bytes, r.At, r.PerSecond, r.Gbits, r.Latency.Median, r.Latency.P99)
	if len(r.Shares) > 1 {
		for _, s := range r.Shares {
			text += fmt.Sprintf("  %s %.3f", s.Rail, s.Gbits)
		}
	}
	return text
}
