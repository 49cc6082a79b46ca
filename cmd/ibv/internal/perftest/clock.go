package perftest

import (
	"context"
	"sync/atomic"
	"time"
)

// The phases of a test with a duration. The margins are not measured.
const (
	firstMargin = iota
	sampling
	lastMargin
	over
)

// A clock has the time since its start, and the phase. Its timers change the phase. The
// loops read it.
type clock struct {
	start      time.Time
	phase      atomic.Int32
	begin, end atomic.Int64 // of the sampling, as by now
	load       *load        // of the sampling; nil: not needed
}

func newClock(l *load) *clock { return &clock{start: time.Now(), load: l} }

// now returns the nanoseconds since the start.
func (c *clock) now() int64 { return int64(time.Since(c.start)) }

// run starts the phases.
func (c *clock) run(duration, margin time.Duration) {
	time.AfterFunc(margin, func() {
		c.load.read(0)
		c.begin.Store(c.now())
		c.phase.Store(sampling)
		time.AfterFunc(duration-2*margin, func() {
			c.end.Store(c.now())
			c.load.read(1)
			c.phase.Store(lastMargin)
			time.AfterFunc(margin, func() { c.phase.Store(over) })
		})
	})
}

// cut ends the sampling now.
func (c *clock) cut() {
	if c.phase.CompareAndSwap(sampling, over) {
		c.end.Store(c.now())
		c.load.read(1)
	}
}

// tick divides the time into intervals, until the context ends.
func (c *clock) tick(ctx context.Context, interval time.Duration) {
	c.end.Store(c.now())
	ticker := time.NewTicker(interval)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.phase.Store(over)
			}
		}
	}()
}

// ticked reports whether an interval has ended. If so, took returns its length.
func (c *clock) ticked() bool {
	if !c.over() {
		return false
	}
	c.phase.Store(firstMargin)
	c.begin.Store(c.end.Load())
	c.end.Store(c.now())
	return true
}

func (c *clock) samples() bool { return c.phase.Load() == sampling }
func (c *clock) over() bool    { return c.phase.Load() == over }

// took returns the duration of the sampling.
func (c *clock) took() time.Duration { return time.Duration(c.end.Load() - c.begin.Load()) }
